//! What `wit/plugin.wit` means to the Wasm runtime.

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
