//! API keys.

use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::errors::ApiError;

/// Shorter keys could be guessed.
const MIN_KEY_BYTES: usize = 16;

/// Why a file of API keys does not serve.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("API keys: {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It has no key.
    #[error("API keys: {0} has no key: write one per line, as `key` or `name:key`")]
    Empty(PathBuf),
    /// A key is too short.
    #[error("API keys: {path}, line {line}: a key has at least {MIN_KEY_BYTES} characters")]
    Short {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
}

/// The keys that open the API. Only their hashes are kept.
pub struct ApiKeys {
    keys: Vec<Key>,
}

struct Key {
    name: String,
    hash: [u8; 32],
}

impl ApiKeys {
    /// Reads a file: one key per line, `key` or `name:key`; `#` starts a comment.
    ///
    /// # Errors
    /// When it cannot be read or holds no usable key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = std::fs::read_to_string(path).map_err(|source| KeyFileError::Io {
            path: path.to_owned(),
            source,
        })?;
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (name, key) = match line.split_once(':') {
                Some((name, key)) => (name.trim().to_owned(), key.trim()),
                None => (format!("line {}", index + 1), line),
            };
            if key.len() < MIN_KEY_BYTES {
                return Err(KeyFileError::Short {
                    path: path.to_owned(),
                    line: index + 1,
                });
            }
            let hash = Sha256::digest(key).into();
            keys.push(Key { name, hash });
        }
        match keys.is_empty() {
            true => Err(KeyFileError::Empty(path.to_owned())),
            false => Ok(Self { keys }),
        }
    }

    /// The name of the key that a request brings. Takes the same time whichever key is compared: hashes
    /// are, all of them and in constant time.
    ///
    /// # Errors
    /// 401 without a key or with an unknown one.
    pub fn check(&self, headers: &HeaderMap) -> Result<&str, ApiError> {
        let unauthorized =
            |code, message: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, code, message));
        let value = headers.get(header::AUTHORIZATION);
        let bearer = value.and_then(|value| value.to_str().ok()).and_then(bearer);
        let Some(key) = bearer else {
            let message = "an API key is needed: send `Authorization: Bearer KEY`";
            return unauthorized("missing_api_key", message);
        };
        let hash: [u8; 32] = Sha256::digest(key).into();
        let mut found = None;
        for known in &self.keys {
            let same: Choice = known.hash.ct_eq(&hash);
            if bool::from(same) {
                found = Some(known.name.as_str());
            }
        }
        match found {
            Some(name) => Ok(name),
            None => unauthorized("invalid_api_key", "this API key is not known here"),
        }
    }
}

/// The key in `Bearer KEY`; the scheme's case does not matter (RFC 9110, section 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ApiKeys, KeyFileError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, text).unwrap();
        ApiKeys::read(&path)
    }

    #[test]
    fn keys_are_read_and_checked() {
        let keys = read("# ours\n\nalice: 0123456789abcdef  # laptop\nfedcba9876543210\n").unwrap();
        let check = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            keys.check(&headers)
                .map(str::to_owned)
                .map_err(|error| error.code_name())
        };
        assert_eq!(check("Bearer 0123456789abcdef"), Ok("alice".to_owned()));
        assert_eq!(check("bearer fedcba9876543210"), Ok("line 4".to_owned()));
        assert_eq!(check("Bearer 0123456789abcdeg"), Err("invalid_api_key"));
        assert_eq!(check("Basic 0123456789abcdef"), Err("missing_api_key"));
        assert_eq!(check("Bearer"), Err("missing_api_key"));
    }

    #[test]
    fn files_that_protect_nothing_are_refused() {
        assert!(matches!(read("# nothing\n"), Err(KeyFileError::Empty(_))));
        let short = read("alice:0123456789abcdef\nbob:short\n");
        assert!(matches!(short, Err(KeyFileError::Short { line: 2, .. })));
    }
}
