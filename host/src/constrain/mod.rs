//! Carries out a plugin's plan on one sequence: the adapter from sandbox sessions to the engine's
//! constraints.
//!
//! The guest says what comes next in whole actions; [`Guided`] walks through them token by token. It
//! owns the list of generated tokens as the context should be, and tells the engine the difference.

mod closing;
mod field;
mod guided;
mod hint;
mod openers;
mod output;
mod planner;
mod report;

#[cfg(test)]
mod tests;

pub use guided::Guided;
pub use planner::Planner;
pub use report::{FieldReport, Reports};

use formwork_sandbox::{LatePolicy, Vocabulary};
use std::sync::Arc;

/// What a walk needs to know besides its session.
pub struct Setting {
    /// The model's vocabulary.
    pub vocabulary: Vocabulary,
    /// The request's temperature: what fields that name none are decoded at.
    pub temperature: f32,
    /// Most generated tokens, as the request has it; bounds what a plan may write.
    pub max_tokens: usize,
    /// What happens to the row when the plugin misses a step's deadline.
    pub on_late: LatePolicy,
    /// Where fields, plugin log and plan calls are noted.
    pub reports: Arc<Reports>,
}
