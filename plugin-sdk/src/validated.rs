//! Values that are validated where masks do not suffice, and written again from the smallest part at fault.

use crate::{Fallback, Field, Grammar, Invalid, Retry, RetryPolicy, Value, Verdict};
use std::cell::RefCell;

/// Attempts at a value that is validated.
const ATTEMPTS: u32 = 3;
/// Added to the temperature at each further attempt.
const HEAT: f32 = 0.2;
/// What the model sees before a further attempt.
const HINT: &str = "\n{value}\nThis value does not fit: {reason}\nThe corrected value:\n";

impl Field {
    /// A text of a grammar that was compiled before. Where a JSON Schema holds keywords that masks do not enforce (see
    /// [`Grammar::unmasked`]), the value is validated, and where it fails it is written again up to twice,
    /// from the part at fault on. A part that was at fault twice gives way to the value around it: what was
    /// chosen there may be why.
    pub fn validated(name: impl Into<String>, grammar: &Grammar) -> Self {
        let field = Self::matcher(name, grammar.start());
        if grammar.unmasked().is_empty() {
            return field;
        }
        let grammar = grammar.clone();
        let faults = RefCell::new(Faults::default());
        let check = move |value: &Value| {
            let mut faults = faults.borrow_mut();
            if value.attempts == 1 {
                *faults = Faults::default();
            }
            match grammar.validate(&value.bytes) {
                Ok(()) => Verdict::Accept,
                Err(invalid) => Verdict::Retry(faults.retry(invalid)),
            }
        };
        field.check(check).retry(ATTEMPTS).heat(HEAT).hint(HINT)
    }
}

/// How a value that is validated is tried again.
pub(crate) fn policy(exhausted: Fallback) -> RetryPolicy {
    RetryPolicy {
        attempts: ATTEMPTS,
        heat: HEAT,
        hint: Some(HINT.to_owned()),
        exhausted,
    }
}

/// Where attempts at one value have begun already.
///
/// Text before the place that an attempt begins at stays as it is, so that an offset up to there means the same
/// part in every attempt since.
#[derive(Default)]
pub(crate) struct Faults(Vec<u32>);

impl Faults {
    /// From where on the value is written again: the innermost part at fault that was not written again yet.
    pub(crate) fn retry(&mut self, invalid: Invalid) -> Retry {
        let Invalid { reason, places } = invalid;
        let fresh = |place: &&u32| !self.0.contains(place);
        let from = places.iter().find(fresh).copied().unwrap_or(0);
        if places.first() == Some(&from) {
            // A fault of its own: what lies after it will be other parts. Where a part gave way instead, the
            // same place at fault again is the same trouble.
            self.0.retain(|&place| place < from);
        }
        self.0.push(from);
        Retry::new(reason).keeping(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where attempts begin, given the places of the faults before each.
    fn begins(faults: &[&[u32]]) -> Vec<u32> {
        let mut known = Faults::default();
        let retry = |places: &&[u32]| {
            let invalid = Invalid {
                reason: "no".to_owned(),
                places: places.to_vec(),
            };
            known.retry(invalid).from
        };
        faults.iter().map(retry).collect()
    }

    #[test]
    fn a_part_at_fault_twice_gives_way_to_the_value_around_it() {
        let deep: &[u32] = &[9, 5, 0];
        assert_eq!(begins(&[deep, deep, deep, deep]), [9, 5, 0, 0]);
    }

    #[test]
    fn another_part_has_its_own_patience() {
        assert_eq!(begins(&[&[9, 5, 0], &[7, 5, 0], &[9, 5, 0]]), [9, 7, 9]);
        assert_eq!(begins(&[&[9, 5, 0], &[20, 0], &[20, 0]]), [9, 20, 0]);
        assert_eq!(begins(&[&[9, 0], &[9, 0], &[7, 0], &[7, 0]]), [9, 0, 7, 0]);
        // Once written again from 5, what begins at 9 is another part.
        assert_eq!(
            begins(&[&[9, 5, 0], &[5, 0], &[9, 5, 0], &[9, 5, 0]]),
            [9, 5, 9, 0]
        );
        assert_eq!(begins(&[&[], &[0]]), [0, 0]);
    }
}
