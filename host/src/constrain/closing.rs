//! Ending a document early, where its grammar allows that: what has to be written so that a limit on tokens
//! leaves a complete text and not a torn one.

use formwork_sandbox::{Action, Matcher, Vocabulary};

/// Tokens before a limit at which a walk begins to look for a way out. Each look costs a few masks.
const LOOK_AHEAD: usize = 48;

/// Room kept beyond the way out: one more sampled token may open a level or two, with their keys.
const MARGIN: usize = 4;

/// Tokens that are left to a field.
pub(super) struct Limits {
    /// By its own `max_tokens`.
    pub(super) field: usize,
    /// By the request's.
    pub(super) request: usize,
    /// Tokens of the template text that completes the output after the field; `None` when more than text may
    /// come, so that ending this field would not complete the output.
    pub(super) after: Option<usize>,
}

impl Limits {
    /// What has to be written now so that the nearer limit leaves a complete text; `None` while there is room
    /// for more, and where there is no way out.
    pub(super) fn way_out(
        &self,
        matcher: &Matcher,
        text: impl FnOnce() -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        let left = match self.after {
            Some(after) => self.field.min(self.request.saturating_sub(after)),
            // Only its own limit is a reason to end this field.
            None if self.field < self.request => self.field,
            None => return None,
        };
        if left > LOOK_AHEAD {
            return None;
        }
        let end = way_out(matcher, &text(), left)?;
        let needed = matcher.grammar().vocabulary().tokenize(&end).len();
        (needed <= left && needed + MARGIN >= left).then_some(end)
    }
}

/// Tokens of the text between the field under way and the end of the output, if nothing else is between them.
pub(super) fn tokens_to_the_end<'a>(
    actions: impl Iterator<Item = &'a Action>,
    vocabulary: &Vocabulary,
) -> Option<usize> {
    let mut text = Vec::new();
    for action in actions {
        match action {
            Action::Write(bytes) => text.extend_from_slice(bytes),
            Action::Finish => return Some(vocabulary.tokenize(&text).len()),
            Action::Field(_) | Action::Sample { .. } => return None,
        }
    }
    // The plugin will be asked again: nobody knows what for.
    None
}

/// Shortest text that completes the walk without inventing anything: what the grammar forces, the end of an
/// open string, closing brackets. `text` is what the walk has brought so far. `None` when the grammar asks
/// for a value first, or the way out is longer than `limit` tokens.
fn way_out(matcher: &Matcher, text: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut walk = matcher.fork();
    let vocabulary = matcher.grammar().vocabulary().clone();
    let mut scan = Scan::default();
    scan.take(text);
    let mut out = Vec::new();
    for _ in 0..limit {
        for token in walk.forced_tokens() {
            walk.commit(token).ok()?;
            scan.take(vocabulary.bytes(token));
            out.extend_from_slice(vocabulary.bytes(token));
        }
        if walk.accepting() {
            return Some(out);
        }
        let mask = walk.mask().ok()?;
        let closer = scan.closers().iter().find_map(|closer| {
            let token = token_of(&vocabulary, *closer)?;
            mask.is_allowed(token).then_some((token, *closer))
        });
        let (token, byte) = closer?;
        walk.commit(token).ok()?;
        scan.take(&[byte]);
        out.push(byte);
    }
    None
}

fn token_of(vocabulary: &Vocabulary, byte: u8) -> Option<u32> {
    vocabulary.trie().token_id_at_bytes(&[byte])
}

/// Where in a JSON text the walk stands, as far as closing it is concerned.
#[derive(Default)]
struct Scan {
    in_string: bool,
    escaped: bool,
}

impl Scan {
    fn take(&mut self, text: &[u8]) {
        for &byte in text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ => {}
            }
        }
    }

    /// Bytes that close the innermost open thing. Outside of a string a quote would open one.
    fn closers(&self) -> &'static [u8] {
        match (self.in_string, self.escaped) {
            (_, true) => &[],
            (true, false) => b"\"",
            (false, false) => b"}]",
        }
    }
}
