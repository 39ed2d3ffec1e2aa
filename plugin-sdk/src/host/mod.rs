//! What the host offers: grammars, masks, the vocabulary, the log.
//!
//! In a plugin these are the world's imports. Natively the feature `testing` backs them by llguidance on
//! a vocabulary of single bytes; without it they panic with a message that says so.

#[cfg(target_arch = "wasm32")]
#[path = "wasm.rs"]
mod backend;
#[cfg(all(not(target_arch = "wasm32"), feature = "testing"))]
#[path = "native.rs"]
mod backend;
#[cfg(all(not(target_arch = "wasm32"), not(feature = "testing")))]
#[path = "absent.rs"]
mod backend;

#[cfg(all(not(target_arch = "wasm32"), feature = "testing"))]
pub(crate) use backend::{END, log_lines};

#[cfg(all(not(target_arch = "wasm32"), feature = "testing"))]
mod schema;

use crate::{Failure, Invalid, Source, TokenId};
use std::rc::Rc;

/// A compiled grammar. The host shares and caches it across requests.
#[derive(Clone)]
pub struct Grammar(Rc<backend::Grammar>);

impl Grammar {
    /// Compiles a grammar.
    ///
    /// # Errors
    /// `invalid-params` when the grammar is wrong, `unsatisfiable` when no text matches it.
    pub fn compile(source: &Source) -> Result<Self, Failure> {
        backend::Grammar::compile(source).map(|grammar| Self(Rc::new(grammar)))
    }

    /// A fresh walk through it.
    pub fn start(&self) -> Matcher {
        Matcher(self.0.start())
    }

    /// JSON pointers of the keywords in a JSON Schema that its matchers do not enforce in full: what is
    /// left to [`validate`](Grammar::validate). Empty for other sources, and for most schemas.
    pub fn unmasked(&self) -> Vec<String> {
        self.0.unmasked()
    }

    /// Validates a finished text against the JSON Schema as it was written: for checks. Everything passes
    /// where [`unmasked`](Grammar::unmasked) is empty.
    ///
    /// # Errors
    /// What is wrong, where in the value, and where that can be begun again. As the error of a
    /// [check](crate::Field::check) it asks for another attempt from there.
    pub fn validate(&self, text: impl AsRef<[u8]>) -> Result<(), Invalid> {
        self.0.validate(text.as_ref())
    }

    /// Whether the text as a whole is one of the grammar's: for checks.
    pub fn matches(&self, text: impl AsRef<[u8]>) -> bool {
        let mut walk = self.start();
        let tokens = backend::encode(text.as_ref());
        tokens.into_iter().all(|token| walk.commit(token).is_ok()) && walk.accepting()
    }
}

/// One walk through a grammar.
pub struct Matcher(pub(crate) backend::Matcher);

impl Matcher {
    /// The tokens that may come next.
    pub fn mask(&self) -> Mask {
        Mask(self.0.mask())
    }

    /// Goes one token on.
    ///
    /// # Errors
    /// When the grammar does not allow the token here.
    pub fn commit(&mut self, token: TokenId) -> Result<(), Failure> {
        self.0.commit(token)
    }

    /// Forgets the last `tokens` commits.
    ///
    /// # Errors
    /// When there were fewer.
    pub fn rollback(&mut self, tokens: u32) -> Result<(), Failure> {
        self.0.rollback(tokens)
    }

    /// Bytes that every continuation starts with; empty where there is a choice.
    pub fn forced(&self) -> Vec<u8> {
        self.0.forced()
    }

    /// Whether what was committed is complete.
    pub fn accepting(&self) -> bool {
        self.0.accepting()
    }
}

impl Clone for Matcher {
    fn clone(&self) -> Self {
        Self(self.0.fork())
    }
}

/// A set of tokens. It lives on the host.
pub struct Mask(pub(crate) backend::Mask);

impl Mask {
    /// Every token, the ends of a turn included.
    pub fn everything() -> Self {
        Self(backend::Mask::everything())
    }

    /// No token.
    pub fn nothing() -> Self {
        Self(backend::Mask::nothing())
    }

    /// These tokens.
    pub fn only(tokens: &[TokenId]) -> Self {
        Self(backend::Mask::only(tokens))
    }

    /// One bit per token, least significant first; exactly `ceil(size / 32)` words.
    ///
    /// # Errors
    /// When there are more or fewer words.
    pub fn from_bits(words: &[u32]) -> Result<Self, String> {
        backend::Mask::from_bits(words).map(Self)
    }

    /// Tokens whose bytes are a prefix of `text` or begin with it.
    pub fn along(text: impl AsRef<[u8]>) -> Self {
        Self(backend::Mask::along(text.as_ref()))
    }

    /// Leaves only what is in `other` too.
    pub fn keep(&mut self, other: &Mask) {
        self.0.keep(&other.0);
    }

    /// Adds what is in `other`.
    pub fn add(&mut self, other: &Mask) {
        self.0.add(&other.0);
    }

    /// Takes away what is in `other`.
    pub fn remove(&mut self, other: &Mask) {
        self.0.remove(&other.0);
    }

    /// Whether a token is in the set.
    pub fn allows(&self, token: TokenId) -> bool {
        self.0.allows(token)
    }

    /// How many tokens are in the set.
    pub fn count(&self) -> u32 {
        self.0.count()
    }
}

/// The loaded model's vocabulary. Tokens are bytes, not text: one character may span several.
pub mod vocabulary {
    use super::backend;
    use crate::TokenId;

    /// The vocabulary as a whole.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Info {
        /// The model's name.
        pub model: String,
        /// Rows of the output head; ids at or past the tokenizer's own size never occur.
        pub size: u32,
        /// Every id that ends a turn.
        pub end: Vec<TokenId>,
        /// SHA-256 over the token bytes in order: two models with the same digest mask alike.
        pub digest: String,
    }

    /// The vocabulary as a whole.
    pub fn describe() -> Info {
        backend::describe()
    }

    /// A token's bytes.
    pub fn bytes(token: TokenId) -> Vec<u8> {
        backend::bytes(token)
    }

    /// The text as tokens.
    pub fn encode(text: impl AsRef<[u8]>) -> Vec<TokenId> {
        backend::encode(text.as_ref())
    }

    /// The token trie in toktrie's flat layout, for a format that walks an automaton of its own.
    pub fn trie() -> Vec<u8> {
        backend::trie()
    }
}

/// Lines for the plugin's author; the host bounds them per request.
pub mod log {
    use super::backend;

    /// How much a line matters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Level {
        /// For the author alone.
        Debug,
        /// Worth knowing.
        Info,
        /// Something is off.
        Warn,
        /// Something failed.
        Error,
    }

    /// Writes one line.
    pub fn write(level: Level, message: &str) {
        backend::log(level, message);
    }

    /// Writes one line at level debug.
    pub fn debug(message: impl AsRef<str>) {
        write(Level::Debug, message.as_ref());
    }

    /// Writes one line at level info.
    pub fn info(message: impl AsRef<str>) {
        write(Level::Info, message.as_ref());
    }

    /// Writes one line at level warn.
    pub fn warn(message: impl AsRef<str>) {
        write(Level::Warn, message.as_ref());
    }

    /// Writes one line at level error.
    pub fn error(message: impl AsRef<str>) {
        write(Level::Error, message.as_ref());
    }
}
