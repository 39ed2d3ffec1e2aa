//! Where a field may end: the tokens that begin what comes after it.

use formwork_sandbox::{Action, Failure, SimpleVob, Vocabulary};

/// Tokens that begin what comes right after the field under way: sampled, they say that it ends.
pub(super) fn openers(
    next: Option<&Action>,
    vocabulary: &Vocabulary,
) -> Result<Option<SimpleVob>, Failure> {
    match next {
        Some(Action::Write(text)) => {
            let mut openers = SimpleVob::alloc(vocabulary.size() as usize);
            for token in vocabulary.trie().all_prefixes(text) {
                if vocabulary.is_text(token) {
                    openers.allow_token(token);
                }
            }
            Ok(Some(openers))
        }
        Some(Action::Field(field)) => field.matcher.fork().mask().map(Some),
        _ => Ok(None),
    }
}
