//! Stock format: a JSON document that lists literals and fields, each field with its own grammar, length,
//! check and retry policy.

mod check;
mod compose;
mod spec;

use compose::Composer;
use formwork_plugin_sdk::Template as Parts;
use formwork_plugin_sdk::prelude::{Failure, Format, Request};

pub use spec::Params;

/// The output is a template out of the params.
pub struct Template {
    parts: Parts,
}

impl Format for Template {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        let parts = Composer::compose(params.parts)?;
        Ok(Self { parts })
    }

    fn template(&self) -> Parts {
        self.parts.clone()
    }
}

formwork_plugin_sdk::export!(Template);
