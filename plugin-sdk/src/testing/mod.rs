//! Runs a plugin natively against text, without a host and without a model.
//!
//! A [`Trace`] is one request together with the text that the model would write for it. It drives the
//! plugin as the host does: literals are forced and must stand in the text; a field takes the longest run
//! of the text that its grammar accepts and after which the text can go on; checks, retries and fallbacks
//! are carried out. Tokens are single bytes here, so a field's `max_tokens` is not enforced.
//!
//! ```
//! # use formwork_plugin_sdk::prelude::*;
//! use formwork_plugin_sdk::testing::Trace;
//! # struct Grade;
//! # #[derive(Deserialize)]
//! # struct Params {}
//! # impl Format for Grade {
//! #     type Params = Params;
//! #     const PARAMS: &'static str = "{}";
//! #     fn open(_: Params, _: &Request) -> Result<Self, Failure> { Ok(Grade) }
//! #     fn template(&self) -> Template {
//! #         let fine = |value: &Value| if value.text() == "0" { Err("grades begin at 1") } else { Ok(()) };
//! #         Template::new().literal("grade: ").field(Field::regex("grade", "[0-9]").check(fine).retry(2))
//! #     }
//! # }
//!
//! let outcome = Trace::of::<Grade>(json!({}))
//!     .text("grade: 3")
//!     .attempt("grade", ["0", "3"])
//!     .run();
//! outcome.assert_output("grade: 3");
//! assert_eq!(outcome.field("grade").attempts, 2);
//! ```

mod outcome;
mod trace;
mod walk;

pub use outcome::{End, FieldOutcome, Outcome, Rejection, assert_described};
pub use trace::Trace;
