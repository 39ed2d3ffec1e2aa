//! What `wit/plugin.wit` means to the Wasm runtime.

use crate::failure::truncate;
use crate::{Formats, Invalid, KeyOrder, MAX_MESSAGE_BYTES, Schema, Spacing};
use formwork::plugin::grammars;
use std::sync::Arc;

/// A mask that a guest holds; copied when it is changed while shared.
pub struct MaskHandle(pub(crate) Arc<crate::SimpleVob>);

/// A grammar that a guest holds.
pub struct GrammarHandle(pub(crate) Arc<crate::Grammar>);

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "format",
    imports: { default: trappable },
    with: {
        "formwork:plugin/masks.mask": MaskHandle,
        "formwork:plugin/grammars.grammar": GrammarHandle,
        "formwork:plugin/grammars.matcher": crate::Matcher,
    },
});

/// The package's name.
pub(crate) const PACKAGE: &str = "formwork:plugin";

/// The version of the package that this host serves.
pub(crate) const VERSION: &str = "0.1.0";

impl From<grammars::Schema> for Schema {
    fn from(schema: grammars::Schema) -> Self {
        let documents = schema.documents.into_iter();
        Self {
            text: schema.text,
            spacing: match schema.spacing {
                grammars::Spacing::Compact => Spacing::Compact,
                grammars::Spacing::Spaced => Spacing::Spaced,
            },
            key_order: match schema.key_order {
                grammars::KeyOrder::Schema => KeyOrder::Schema,
                grammars::KeyOrder::Any => KeyOrder::Any,
            },
            formats: match schema.formats {
                grammars::Formats::Asserted => Formats::Asserted,
                grammars::Formats::Annotated => Formats::Annotated,
            },
            documents: documents
                .map(|document| (document.uri, document.text))
                .collect(),
        }
    }
}

impl From<Invalid> for grammars::Invalid {
    fn from(invalid: Invalid) -> Self {
        let Invalid { mut reason, places } = invalid;
        truncate(&mut reason, MAX_MESSAGE_BYTES);
        let places = places.into_iter().map(u32::try_from);
        Self {
            reason,
            // An offset past 4 GiB is of no text that a guest can hold.
            places: places.filter_map(Result::ok).collect(),
        }
    }
}
