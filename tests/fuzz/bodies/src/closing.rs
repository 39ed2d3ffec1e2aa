//! From anywhere in a walk to a complete text.

use crate::dice::Dice;
use formwork_sandbox::{Matcher, TokenId};

/// Attempts at an end, and tokens of each.
const ATTEMPTS: usize = 12;
const TOKENS: usize = 160;

/// What ends things: a string that is open, then whatever encloses it.
const IN_STRING: &[u8] = b"\"";
const OUTSIDE: &[u8] = b"}])>'.;x0\"";

/// A text that completes the walk after `text`, `None` where none was found. The first attempt takes closing
/// characters wherever it may, further ones more and more at random.
pub(crate) fn close(matcher: &Matcher, text: &[u8], dice: &mut Dice) -> Option<Vec<u8>> {
    (0..ATTEMPTS).find_map(|attempt| attempt_to_close(matcher.fork(), text, dice, attempt))
}

fn attempt_to_close(
    mut walk: Matcher,
    before: &[u8],
    dice: &mut Dice,
    wildness: usize,
) -> Option<Vec<u8>> {
    let vocabulary = walk.grammar().vocabulary().clone();
    let mut text = before.to_vec();
    for _ in 0..TOKENS {
        if walk.accepting() {
            return Some(text.split_off(before.len()));
        }
        let mask = walk.mask().ok()?;
        let closers = match in_string(&text) {
            true => IN_STRING,
            false => OUTSIDE,
        };
        let closers = closers.iter().map(|&byte| TokenId::from(byte));
        let closer = closers.into_iter().find(|&token| mask.is_allowed(token));
        let token = match closer {
            Some(token) if dice.roll(ATTEMPTS) >= wildness => token,
            _ => *dice.pick(&mask.to_list()),
        };
        walk.commit(token).ok()?;
        text.extend_from_slice(vocabulary.bytes(token));
    }
    None
}

fn in_string(text: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}
