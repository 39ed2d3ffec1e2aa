//! One spelling for each character of a JSON string.
//!
//! The grammar engine lets characters be written by their numbers: `\u000a` beside `\n`, `\u001F` beside
//! `\u001f`, and in names of properties `\u0061` beside `a`, so that a property could come under another
//! spelling of its name. Here every character has one spelling: as itself, else by its short escape, else by
//! `\u00` and two lower-case digits.

use crate::Vocabulary;
use toktrie::{SimpleVob, TokenId};

/// Where a JSON text stands with regard to escapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    /// In none.
    #[default]
    Plain,
    Backslash,
    U,
    U0,
    U00,
    U000,
    U001,
    U007,
}

impl At {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Backslash,
        Self::U,
        Self::U0,
        Self::U00,
        Self::U000,
        Self::U001,
        Self::U007,
    ];

    /// After one more byte; `None` where it is no part of the one spelling. Which short escapes there are is
    /// the grammar's business, and no backslash stands outside of strings.
    fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Plain, b'\\') => Self::Backslash,
            (Self::Plain, _) => Self::Plain,
            (Self::Backslash, b'u') => Self::U,
            (Self::Backslash, _) => Self::Plain,
            (Self::U, b'0') => Self::U0,
            (Self::U0, b'0') => Self::U00,
            (Self::U00, b'0') => Self::U000,
            (Self::U00, b'1') => Self::U001,
            (Self::U00, b'7') => Self::U007,
            // But for backspace, tab, line feed, form feed and carriage return.
            (Self::U000, b'0'..=b'7' | b'b' | b'e' | b'f')
            | (Self::U001, b'0'..=b'9' | b'a'..=b'f')
            | (Self::U007, b'f') => Self::Plain,
            _ => return None,
        })
    }

    /// After these bytes.
    pub(crate) fn after(self, bytes: &[u8]) -> Option<Self> {
        bytes.iter().try_fold(self, |at, &byte| at.step(byte))
    }

    /// Whether the digits so far may have no end that the grammar allows too: after a backslash alone there
    /// is a short escape, or a character that has none.
    pub(crate) fn is_open(self) -> bool {
        !matches!(self, Self::Plain | Self::Backslash)
    }

    /// Every end of an escape begun so.
    fn ends(self) -> Vec<Vec<u8>> {
        let begun: &[u8] = match self {
            Self::Plain | Self::Backslash => return Vec::new(),
            Self::U => b"",
            Self::U0 => b"0",
            Self::U00 => b"00",
            Self::U000 => b"000",
            Self::U001 => b"001",
            Self::U007 => b"007",
        };
        let digits = (0..=0x7f_u8).map(|code| format!("{code:04x}").into_bytes());
        let ends = digits.filter_map(|digits| Some(digits.strip_prefix(begun)?.to_vec()));
        ends.filter(|end| self.after(end) == Some(Self::Plain))
            .collect()
    }
}

/// What a vocabulary's tokens are to the one spelling.
pub(crate) struct Spelling {
    /// For each [`At`].
    states: Vec<State>,
}

struct State {
    /// The tokens that are spelled right there.
    fine: SimpleVob,
    /// Those of them after which an escape is open, and where it is then.
    open: Vec<(TokenId, At)>,
    /// The tokens of every end of an escape that has come so far.
    ends: Vec<Vec<TokenId>>,
}

impl Spelling {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Self {
        let state = |at: At| {
            let mut fine = SimpleVob::alloc(vocabulary.size() as usize);
            let mut open = Vec::new();
            vocabulary.text().iter_set_entries(|token| {
                let token = token as TokenId;
                let Some(after) = at.after(vocabulary.bytes(token)) else {
                    return;
                };
                fine.allow_token(token);
                if after.is_open() {
                    open.push((token, after));
                }
            });
            let token = |byte: &u8| vocabulary.trie().token_id(&[*byte]);
            let tokens = |end: Vec<u8>| end.iter().map(token).collect();
            let ends = at.ends().into_iter().filter_map(tokens).collect();
            State { fine, open, ends }
        };
        Self {
            states: At::ALL.into_iter().map(state).collect(),
        }
    }

    /// Takes out what is spelled otherwise. `fits` tells whether the grammar lets tokens follow: a token that
    /// leaves an escape open stays only where an end of it is allowed.
    pub(crate) fn narrow(
        &self,
        mask: &mut SimpleVob,
        at: At,
        mut fits: impl FnMut(&[TokenId]) -> bool,
    ) {
        let state = &self.states[at as usize];
        mask.and(&state.fine);
        for &(token, after) in &state.open {
            if mask.is_allowed(token) && !self.has_end(after, token, &mut fits) {
                mask.disallow_token(token);
            }
        }
    }

    /// Whether the grammar allows an end of the escape that `token` leaves open.
    pub(crate) fn has_end(
        &self,
        after: At,
        token: TokenId,
        mut fits: impl FnMut(&[TokenId]) -> bool,
    ) -> bool {
        let ends = &self.states[after as usize].ends;
        ends.iter()
            .any(|end| fits(&[&[token], end.as_slice()].concat()))
    }
}

/// The text with `\ufffd` in the place of each escape of half a surrogate pair. They are legal in JSON but
/// name no character, and no parser into Unicode strings takes them. No byte moves.
pub(crate) fn paired(text: &[u8]) -> Vec<u8> {
    let mut mended = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        at += match (unit(text, at), unit(text, at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended[at..at + 6].copy_from_slice(br"\ufffd");
                6
            }
            _ if text[at] == b'\\' => 2,
            _ => 1,
        };
    }
    mended
}

/// What four digits at this place name, if they are an escape.
fn unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(br"\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_pairs_are_replaced_where_they_stand() {
        for (text, expected) in [
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (
                r#""\uD800x\ud83d\uDE00\udbff""#,
                r#""\ufffdx\ud83d\uDE00\ufffd""#,
            ),
            (r#""\\ud800\u00e9\ud8""#, r#""\\ud800\u00e9\ud8""#),
            (r#""\\\ud800\u+800""#, r#""\\\ufffd\u+800""#),
            (r"\", r"\"),
        ] {
            assert_eq!(paired(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn every_character_has_one_spelling() {
        for code in 0..=0x7f_u8 {
            let short = "\u{8}\u{c}\n\r\t".contains(char::from(code));
            let digits = (code < b' ' && !short) || code == 0x7f;
            let spelled = |text: String| At::Plain.after(text.as_bytes()) == Some(At::Plain);
            assert_eq!(spelled(format!("a\\u{code:04x}b")), digits, "{code}");
            let upper = format!("\\u{code:04X}");
            let same = upper == format!("\\u{code:04x}");
            assert_eq!(spelled(upper), digits && same, "{code}");
        }
        for (text, at) in [
            (r#"{"a\\u0061":"\"\n"}"#, Some(At::Plain)),
            (r"\ud83d", None),
            (r"\u00e9", None),
            (r"\\\u00", Some(At::U00)),
            (r"\", Some(At::Backslash)),
        ] {
            assert_eq!(At::Plain.after(text.as_bytes()), at, "{text}");
        }
    }

    #[test]
    fn an_open_escape_has_the_ends_that_are_left() {
        let ends = |at: At| at.ends().len();
        assert_eq!([At::U, At::U0, At::U00].map(ends), [28, 28, 28]);
        assert_eq!([At::U000, At::U001, At::U007].map(ends), [11, 16, 1]);
        assert_eq!(At::U007.ends(), [b"f"]);
        assert!(At::Plain.ends().is_empty() && At::Backslash.ends().is_empty());
    }
}
