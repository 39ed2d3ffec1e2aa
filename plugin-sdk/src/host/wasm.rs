//! The world's imports.

use super::{log::Level, vocabulary::Info};
use crate::guest::bindings::formwork::plugin as host;
use crate::{Failure, Formats, Invalid, KeyOrder, Schema, Source, Spacing, TokenId};

pub(crate) struct Grammar(host::grammars::Grammar);

impl Grammar {
    pub(crate) fn compile(source: &Source) -> Result<Self, Failure> {
        let source = match source.clone() {
            Source::JsonSchema(schema) => host::grammars::Source::JsonSchema(schema.into()),
            Source::Regex(text) => host::grammars::Source::Regex(text),
            Source::Lark(text) => host::grammars::Source::Lark(text),
            Source::Choice(texts) => host::grammars::Source::Choice(texts),
        };
        Ok(Self(host::grammars::Grammar::compile(&source)?))
    }

    pub(crate) fn start(&self) -> Matcher {
        Matcher(self.0.start())
    }

    pub(crate) fn unmasked(&self) -> Vec<String> {
        self.0.unmasked()
    }

    pub(crate) fn validate(&self, text: &[u8]) -> Result<(), Invalid> {
        self.0.validate(text).map_err(|invalid| Invalid {
            reason: invalid.reason,
            places: invalid.places,
        })
    }
}

impl From<Schema> for host::grammars::Schema {
    fn from(schema: Schema) -> Self {
        let documents = schema.documents.into_iter();
        Self {
            text: schema.text,
            spacing: match schema.spacing {
                Spacing::Compact => host::grammars::Spacing::Compact,
                Spacing::Spaced => host::grammars::Spacing::Spaced,
            },
            key_order: match schema.key_order {
                KeyOrder::Schema => host::grammars::KeyOrder::Schema,
                KeyOrder::Any => host::grammars::KeyOrder::Any,
            },
            formats: match schema.formats {
                Formats::Asserted => host::grammars::Formats::Asserted,
                Formats::Annotated => host::grammars::Formats::Annotated,
            },
            documents: documents
                .map(|(uri, text)| host::grammars::Document { uri, text })
                .collect(),
        }
    }
}

pub(crate) struct Matcher(pub(crate) host::grammars::Matcher);

impl Matcher {
    pub(crate) fn mask(&self) -> Mask {
        Mask(self.0.mask())
    }

    pub(crate) fn commit(&mut self, token: TokenId) -> Result<(), Failure> {
        Ok(self.0.commit(token)?)
    }

    pub(crate) fn rollback(&mut self, tokens: u32) -> Result<(), Failure> {
        Ok(self.0.rollback(tokens)?)
    }

    pub(crate) fn forced(&self) -> Vec<u8> {
        self.0.forced()
    }

    pub(crate) fn accepting(&self) -> bool {
        self.0.accepting()
    }

    pub(crate) fn fork(&self) -> Self {
        Self(self.0.clone())
    }
}

pub(crate) struct Mask(pub(crate) host::masks::Mask);

impl Mask {
    pub(crate) fn everything() -> Self {
        Self(host::masks::Mask::everything())
    }

    pub(crate) fn nothing() -> Self {
        Self(host::masks::Mask::nothing())
    }

    pub(crate) fn only(tokens: &[TokenId]) -> Self {
        Self(host::masks::Mask::only(tokens))
    }

    pub(crate) fn from_bits(words: &[u32]) -> Result<Self, String> {
        host::masks::Mask::from_bits(words).map(Self)
    }

    pub(crate) fn along(text: &[u8]) -> Self {
        Self(host::masks::Mask::along(text))
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        self.0.keep(&other.0);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
    }

    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.remove(&other.0);
    }

    pub(crate) fn allows(&self, token: TokenId) -> bool {
        self.0.allows(token)
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.count()
    }
}

pub(crate) fn describe() -> Info {
    let info = host::vocabulary::describe();
    Info {
        model: info.model,
        size: info.size,
        end: info.end,
        digest: info.digest,
    }
}

pub(crate) fn bytes(token: TokenId) -> Vec<u8> {
    host::vocabulary::bytes(token)
}

pub(crate) fn encode(text: &[u8]) -> Vec<TokenId> {
    host::vocabulary::encode(text)
}

pub(crate) fn trie() -> Vec<u8> {
    host::vocabulary::trie()
}

pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => host::log::Level::Debug,
        Level::Info => host::log::Level::Info,
        Level::Warn => host::log::Level::Warn,
        Level::Error => host::log::Level::Error,
    };
    host::log::write(level, message);
}
