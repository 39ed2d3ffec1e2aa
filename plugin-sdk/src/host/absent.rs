//! No host: the crate was built natively without the feature `testing`.

use super::{log::Level, vocabulary::Info};
use crate::{Failure, Invalid, Source, TokenId};

fn absent() -> ! {
    panic!(
        "a plugin has no host here: build it for wasm32-unknown-unknown, or, for `cargo test`, put \
         `formwork-plugin-sdk = {{ ..., features = [\"testing\"] }}` under [dev-dependencies]"
    )
}

pub(crate) struct Grammar(std::convert::Infallible);

impl Grammar {
    pub(crate) fn compile(_: &Source) -> Result<Self, Failure> {
        absent()
    }

    pub(crate) fn start(&self) -> Matcher {
        match self.0 {}
    }

    pub(crate) fn unmasked(&self) -> Vec<String> {
        match self.0 {}
    }

    pub(crate) fn validate(&self, _: &[u8]) -> Result<(), Invalid> {
        match self.0 {}
    }
}

pub(crate) struct Matcher(std::convert::Infallible);

impl Matcher {
    pub(crate) fn mask(&self) -> Mask {
        match self.0 {}
    }

    pub(crate) fn commit(&mut self, _: TokenId) -> Result<(), Failure> {
        match self.0 {}
    }

    pub(crate) fn rollback(&mut self, _: u32) -> Result<(), Failure> {
        match self.0 {}
    }

    pub(crate) fn forced(&self) -> Vec<u8> {
        match self.0 {}
    }

    pub(crate) fn accepting(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn fork(&self) -> Self {
        match self.0 {}
    }
}

pub(crate) struct Mask(std::convert::Infallible);

impl Mask {
    pub(crate) fn everything() -> Self {
        absent()
    }

    pub(crate) fn nothing() -> Self {
        absent()
    }

    pub(crate) fn only(_: &[TokenId]) -> Self {
        absent()
    }

    pub(crate) fn from_bits(_: &[u32]) -> Result<Self, String> {
        absent()
    }

    pub(crate) fn along(_: &[u8]) -> Self {
        absent()
    }

    pub(crate) fn keep(&mut self, _: &Self) {
        match self.0 {}
    }

    pub(crate) fn add(&mut self, _: &Self) {
        match self.0 {}
    }

    pub(crate) fn remove(&mut self, _: &Self) {
        match self.0 {}
    }

    pub(crate) fn allows(&self, _: TokenId) -> bool {
        match self.0 {}
    }

    pub(crate) fn count(&self) -> u32 {
        match self.0 {}
    }
}

pub(crate) fn describe() -> Info {
    absent()
}

pub(crate) fn bytes(_: TokenId) -> Vec<u8> {
    absent()
}

pub(crate) fn encode(_: &[u8]) -> Vec<TokenId> {
    absent()
}

pub(crate) fn trie() -> Vec<u8> {
    absent()
}

pub(crate) fn log(_: Level, _: &str) {
    absent()
}
