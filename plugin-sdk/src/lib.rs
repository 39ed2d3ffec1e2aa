//! Write a Formwork output format as one Rust file.
//!
//! A format is a type that implements [`Format`]; [`export!`] turns it into the plugin world of
//! `wit/plugin.wit`. Most formats only say what their output looks like, as a [`Template`]:
//!
//! ```
//! use formwork_plugin_sdk::prelude::*;
//!
//! struct Mood;
//!
//! #[derive(Deserialize)]
//! struct Params {}
//!
//! impl Format for Mood {
//!     type Params = Params;
//!     const PARAMS: &'static str = r#"{"type":"object","additionalProperties":false}"#;
//!
//!     fn open(_: Params, _: &Request) -> Result<Self, Failure> {
//!         Ok(Mood)
//!     }
//!
//!     fn template(&self) -> Template {
//!         Template::new()
//!             .literal(r#"{"mood":""#)
//!             .field(Field::choice("mood", ["calm", "angry"]))
//!             .literal(r#""}"#)
//!     }
//! }
//!
//! formwork_plugin_sdk::export!(Mood);
//! # fn main() {}
//! ```
//!
//! A format that decides more than a template can say implements [`Format::plan`] instead.
//! With the feature `testing`, a plugin runs in `cargo test` against text: see the module `testing`.

mod contract;
mod decide;
// Natively only `testing` drives a format.
#[cfg_attr(
    not(any(target_arch = "wasm32", feature = "testing")),
    allow(dead_code)
)]
mod driver;
mod field;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;
mod host;
mod plan;
mod source;
mod template;
#[cfg(all(feature = "testing", not(target_arch = "wasm32")))]
pub mod testing;
mod text;
mod validated;

pub use contract::{
    Failure, FailureKind, Format, Invalid, LatePolicy, Observed, Request, Retry, TokenId, Value,
    Values, Verdict,
};
pub use field::{Fallback, Field, RetryPolicy};
pub use host::{Grammar, Mask, Matcher, log, vocabulary};
pub use plan::Plan;
pub use source::{Formats, KeyOrder, Schema, Source, Spacing};
pub use template::{Template, TemplateError};

pub use serde;
pub use serde_json;

/// The guide's complete examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/plugins.md")]
mod guide {}

/// What a plugin's file needs: `use formwork_plugin_sdk::prelude::*;`.
///
/// `Deserialize` comes with its derive macro, which wants `serde` among the plugin's own dependencies.
pub mod prelude {
    pub use crate::{
        Failure, Field, Format, Grammar, LatePolicy, Mask, Matcher, Observed, Plan, Request,
        Schema, Source, Template, Value, Values, Verdict, log, vocabulary,
    };
    pub use serde::Deserialize;
    pub use serde_json::{Value as Json, json};
}

/// Makes the crate a plugin whose format is the named type, which implements [`Format`].
///
/// Once per crate. On targets other than wasm32 it only checks that the type is a format.
#[macro_export]
macro_rules! export {
    ($format:ty) => {
        #[cfg(target_arch = "wasm32")]
        type FormworkComponent = $crate::guest::Component<$format>;
        #[cfg(target_arch = "wasm32")]
        $crate::guest::bindings::export!(FormworkComponent with_types_in $crate::guest::bindings);
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            const fn is_a_format<T: $crate::Format>() {}
            is_a_format::<$format>();
        };
    };
}
