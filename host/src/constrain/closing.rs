//! Ending a document early, where its grammar allows that: what has to be written so that a limit on tokens
//! leaves a complete text and not a torn one.

use formwork_sandbox::{Matcher, Vocabulary};

/// Tokens before a limit at which a walk begins to look for a way out. Each look costs a few masks.
pub(super) const LOOK_AHEAD: usize = 48;

/// Room kept beyond the way out: one more sampled token may open a level or two, with their keys.
pub(super) const MARGIN: usize = 4;

/// Shortest text that completes the walk without inventing anything: what the grammar forces, the end of an
/// open string, closing brackets. `text` is what the walk has brought so far. `None` when the grammar asks
/// for a value first, or the way out is longer than `limit` tokens.
pub(super) fn way_out(matcher: &Matcher, text: &[u8], limit: usize) -> Option<Vec<u8>> {
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
