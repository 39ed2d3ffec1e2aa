//! Finds the tightest lowering that the grammar engine takes.

use super::cost::Cost;
use super::lower::{Lowered, lower};
use super::weakening::Weakenings;
use super::{KeyOrder, Terms, overlap, style};
use serde_json::Value;

/// Why a lowered schema did not become a grammar.
#[derive(Debug)]
pub(crate) enum Complaint {
    /// No value satisfies it; nor, then, the schema that it was made from.
    Unsatisfiable(String),
    /// The engine does not take it, or not at this cost.
    Refused(String),
}

/// The lowered schema with what the grammar engine made of it. `is_cheap` says whether the masks of a
/// schema by itself are, which is asked of patterns that look dear.
///
/// # Errors
/// When no value satisfies the schema, or nothing at all is left of it that the engine takes.
pub(super) fn fit<G>(
    root: &Value,
    terms: Terms,
    mut attempt: impl FnMut(Value) -> Result<G, Complaint>,
    is_cheap: &dyn Fn(Value) -> bool,
) -> Result<(Lowered, G), Complaint> {
    let mut weak = Weakenings::default();
    let mut cost = Cost::new(is_cheap);
    let mut attempt = |weak: &Weakenings| {
        let mut lowered = lower(root, terms, weak);
        cost.lighten(&mut lowered);
        let made = attempt(lowered.schema.clone())?;
        Ok((lowered, made))
    };
    let mut found = loop {
        match attempt(&weak) {
            Ok(found) => break found,
            Err(Complaint::Refused(message)) if weak.give_way(&message) => {}
            Err(complaint) => return Err(complaint),
        }
    };
    // What gave way on the way there may not have been at fault.
    for kind in weak.doubtful().into_iter().rev() {
        let mut fewer = weak.clone();
        fewer.remove(kind);
        if let Ok(better) = attempt(&fewer) {
            (weak, found) = (fewer, better);
        }
    }
    let (mut lowered, made) = found;
    match terms.key_order {
        KeyOrder::Schema => overlap::report(&mut lowered),
        KeyOrder::Any => {
            // Subschemas are not where they were. What tells alternatives apart does not hang on the order.
            let terms = Terms {
                key_order: KeyOrder::Schema,
                ..terms
            };
            let mut ordered = lower(root, terms, &weak);
            overlap::report(&mut ordered);
            lowered.leave_to_validation(ordered.unmasked);
        }
    }
    if style::has_delete(root) {
        // In the name of a property it has a second spelling, which the mask takes for another property.
        let named = |pointer: &str| pointer.ends_with("roperties");
        let hidden: Vec<_> = lowered
            .masked
            .iter()
            .filter(|one| named(one))
            .cloned()
            .collect();
        lowered.leave_to_validation(hidden);
    }
    Ok((lowered, made))
}
