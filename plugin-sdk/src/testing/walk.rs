//! How a field takes its part of the text.

use super::outcome::Rejection;
use crate::driver::{Action, Walk};
use crate::host::END;
use crate::{Mask, Matcher};

/// The text and how far it is used up.
pub(super) struct Cursor {
    text: Vec<u8>,
    pub(super) at: usize,
}

/// What may come after a field.
pub(super) enum Follow {
    /// This literal.
    Literal(Vec<u8>),
    /// Another field.
    Matcher(Matcher),
    /// The end of the text.
    End,
    /// Whatever the next plan says.
    Anything,
}

impl Follow {
    pub(super) fn of(next: Option<&Action>) -> Self {
        match next {
            Some(Action::Write(bytes)) => Self::Literal(bytes.clone()),
            Some(Action::Field(walk)) => Self::Matcher(walk.matcher.clone()),
            Some(Action::Finish) => Self::End,
            Some(Action::Sample { .. }) | None => Self::Anything,
        }
    }

    fn fits(&self, rest: &[u8]) -> bool {
        match self {
            Self::Literal(bytes) => rest.starts_with(bytes),
            Self::Matcher(matcher) => match rest.first() {
                Some(&byte) => matcher.mask().allows(byte.into()),
                None => matcher.accepting(),
            },
            Self::End => rest.is_empty(),
            Self::Anything => true,
        }
    }
}

impl Cursor {
    pub(super) fn new(text: Vec<u8>) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn next(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    /// Goes on past bytes that must stand here.
    pub(super) fn take_literal(&mut self, bytes: &[u8]) -> Result<(), Rejection> {
        let rest = self.rest();
        if rest.starts_with(bytes) {
            self.at += bytes.len();
            return Ok(());
        }
        let same = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let why = format!(
            "the format writes {:?}, the text has {:?}",
            String::from_utf8_lossy(&bytes[same..]),
            excerpt(&rest[same..]),
        );
        Err(Rejection {
            at: self.at + same,
            why,
        })
    }

    pub(super) fn expect_end(&self) -> Result<(), Rejection> {
        if self.rest().is_empty() {
            return Ok(());
        }
        Err(Rejection {
            at: self.at,
            why: format!(
                "the output is complete, the text goes on with {:?}",
                excerpt(self.rest())
            ),
        })
    }

    /// The longest run of text from here that the field accepts and after which the text can go on.
    pub(super) fn scan(&self, walk: &Walk, follow: &Follow) -> Result<Vec<u8>, Rejection> {
        let mut matcher = walk.matcher.clone();
        let rest = self.rest();
        let (mut longest, mut accepted) = (None, None);
        let mut length = 0;
        let stopped_at = loop {
            if matcher.accepting() {
                accepted = Some(length);
                if follow.fits(&rest[length..]) {
                    longest = Some(length);
                }
            }
            match rest.get(length) {
                Some(&byte) if matcher.commit(byte.into()).is_ok() => length += 1,
                next => break next.copied(),
            }
        };
        if let Some(length) = longest {
            return Ok(rest[..length].to_vec());
        }
        let field = format!("field `{}`", walk.name);
        match (accepted, follow) {
            (Some(length), Follow::Literal(bytes)) => Err(Rejection {
                at: self.at + length,
                why: format!(
                    "{field} may end here, but then {:?} follows, and the text has {:?}",
                    String::from_utf8_lossy(bytes),
                    excerpt(&rest[length..]),
                ),
            }),
            _ => Err(Rejection {
                at: self.at + length,
                why: not_allowed(&field, stopped_at, &matcher.mask()),
            }),
        }
    }
}

/// Checks that a scripted value is one that the field's grammar accepts.
pub(super) fn accepts(walk: &Walk, bytes: &[u8], at: usize) -> Result<(), Rejection> {
    let mut matcher = walk.matcher.clone();
    let field = format!("attempt {:?} at field `{}`", excerpt(bytes), walk.name);
    for &byte in bytes {
        if matcher.commit(byte.into()).is_err() {
            let why = not_allowed(&field, Some(byte), &matcher.mask());
            return Err(Rejection { at, why });
        }
    }
    if matcher.accepting() {
        return Ok(());
    }
    let why = not_allowed(&field, None, &matcher.mask());
    Err(Rejection { at, why })
}

/// Says what came and what may come instead.
pub(super) fn not_allowed(who: &str, next: Option<u8>, mask: &Mask) -> String {
    let name = |byte: u8| format!("{:?}", String::from_utf8_lossy(&[byte]));
    let came = next.map_or_else(|| "the end of the text".into(), name);
    let printable = (0x20..0x7fu8).filter(|&byte| mask.allows(byte.into()));
    let mut instead: Vec<String> = printable.take(12).map(name).collect();
    if instead.len() == 12 {
        instead.push("…".into());
    }
    if mask.allows(END) {
        instead.push("the end".into());
    }
    format!(
        "{who} does not allow {came}; allowed: {}",
        instead.join(" ")
    )
}

fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
    if bytes.len() > MOST {
        text.push('…');
    }
    text
}
