//! Bytes become text: at character boundaries, up to a stop string.

use std::collections::VecDeque;
use std::sync::Arc;

use formwork_engine::{Chunk, EmittedToken};
use formwork_sandbox::Vocabulary;

use super::CallDelta;
use super::stops::{first_start, first_stop, longest_start};

/// Text that may be shown, with the tokens that are wholly shown with it.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// Empty unless tokens were asked for.
    pub tokens: Vec<ShownToken>,
    /// What the model thought aloud before its answer.
    pub reasoning: String,
    /// What was not text but calls of tools, in order.
    pub calls: Vec<CallDelta>,
}

/// A token and where it begins.
#[derive(Clone, Debug)]
pub struct ShownToken {
    /// The token.
    pub token: EmittedToken,
    /// Characters of the answer before it.
    pub offset: usize,
}

/// Decodes UTF-8 piece by piece. What is not UTF-8 becomes U+FFFD; a character whose end is still to come
/// is held back.
#[derive(Debug, Default)]
struct Utf8 {
    pending: Vec<u8>,
}

impl Utf8 {
    fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut done = 0;
        while done < self.pending.len() {
            match std::str::from_utf8(&self.pending[done..]) {
                Ok(valid) => {
                    text.push_str(valid);
                    done = self.pending.len();
                }
                Err(error) => {
                    let valid = &self.pending[done..done + error.valid_up_to()];
                    text.push_str(&String::from_utf8_lossy(valid));
                    done += valid.len();
                    let Some(invalid) = error.error_len() else {
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    done += invalid;
                }
            }
        }
        self.pending.drain(..done);
    }

    fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            text.push_str(&String::from_utf8_lossy(&self.pending));
            self.pending.clear();
        }
    }
}

/// The tokens of an answer, each held until its text is out.
struct Tokens {
    vocabulary: Arc<Vocabulary>,
    waiting: VecDeque<Waiting>,
    /// Bytes that all tokens so far stand for.
    token_bytes: usize,
    /// Bytes taken in.
    fed: usize,
    /// Bytes of text, and characters, at the end of the last token.
    end: (usize, usize),
}

#[derive(Debug)]
struct Waiting {
    token: ShownToken,
    /// Bytes of text before it, and up to its end.
    start: usize,
    end: usize,
}

/// The text of one answer.
pub struct TextStream {
    utf8: Utf8,
    stops: Arc<[String]>,
    /// Decoded, but may be the start of a stop string.
    held: String,
    /// Bytes and characters of text decoded so far, `held` included.
    decoded: (usize, usize),
    tokens: Option<Tokens>,
    stopped: bool,
    /// From where this first stands on, stop strings are text like any other.
    until: Option<&'static str>,
}

impl TextStream {
    /// An empty answer. With a vocabulary the pieces bring their tokens.
    pub fn new(stops: Arc<[String]>, tokens_of: Option<Arc<Vocabulary>>) -> Self {
        Self {
            utf8: Utf8::default(),
            stops,
            held: String::new(),
            decoded: (0, 0),
            tokens: tokens_of.map(|vocabulary| Tokens {
                vocabulary,
                waiting: VecDeque::new(),
                token_bytes: 0,
                fed: 0,
                end: (0, 0),
            }),
            stopped: false,
            until: None,
        }
    }

    /// Looks for stop strings only before the first of these markers.
    #[must_use]
    pub fn until(mut self, marker: &'static str) -> Self {
        self.until = Some(marker);
        self
    }

    /// Whether a stop string was met. Nothing is taken in after it.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes in a chunk and gives out what can be shown.
    pub fn push(&mut self, chunk: Chunk) -> Piece {
        if self.stopped {
            return Piece::default();
        }
        let mut bytes = chunk.bytes.as_slice();
        if let Some(mut tokens) = self.tokens.take() {
            for token in chunk.tokens {
                tokens.token_bytes += tokens.vocabulary.bytes(token.token).len();
                let length = tokens
                    .token_bytes
                    .saturating_sub(tokens.fed)
                    .min(bytes.len());
                let (own, rest) = bytes.split_at(length);
                self.decode(own);
                tokens.fed += length;
                bytes = rest;
                self.note(&mut tokens, token);
            }
            tokens.fed += bytes.len();
            self.tokens = Some(tokens);
        }
        self.decode(bytes);
        self.release()
    }

    /// Gives out what is left: nothing more comes.
    pub fn finish(&mut self) -> Piece {
        if self.stopped {
            return Piece::default();
        }
        let mut text = String::new();
        self.utf8.finish(&mut text);
        self.append(&text);
        // What looked like the beginning of a marker is text.
        if self.until.is_some_and(|marker| !self.held.contains(marker)) {
            self.until = None;
        }
        let mut piece = self.release();
        if !self.stopped {
            piece.text.push_str(&std::mem::take(&mut self.held));
            if let Some(tokens) = &mut self.tokens {
                piece
                    .tokens
                    .extend(tokens.waiting.drain(..).map(|waiting| waiting.token));
            }
        }
        piece
    }

    fn decode(&mut self, bytes: &[u8]) {
        let mut text = String::new();
        self.utf8.push(bytes, &mut text);
        self.append(&text);
    }

    fn append(&mut self, text: &str) {
        self.decoded.0 += text.len();
        self.decoded.1 += text.chars().count();
        self.held.push_str(text);
    }

    /// Notes a token that ends where decoding stands now.
    fn note(&self, tokens: &mut Tokens, token: EmittedToken) {
        // One that ends inside a character is shown with that character, which comes with a later byte.
        let unfinished = usize::from(!self.utf8.pending.is_empty());
        tokens.waiting.push_back(Waiting {
            token: ShownToken {
                token,
                offset: tokens.end.1,
            },
            start: tokens.end.0,
            end: self.decoded.0 + unfinished,
        });
        tokens.end = self.decoded;
    }

    fn release(&mut self) -> Piece {
        let marker = self.until.and_then(|marker| self.held.find(marker));
        // Up to here it is known whether text is before the marker.
        let known = marker.unwrap_or(self.held.len() - longest_start(&self.held, self.until));
        let cut = match first_stop(&self.held[..known], &self.stops) {
            Some(start) => {
                self.stopped = true;
                start
            }
            None if marker.is_some() => {
                self.stops = Arc::default();
                self.until = None;
                self.held.len()
            }
            None => {
                let stops = self.stops.iter().map(String::as_str);
                let begun = self.held.len() - longest_start(&self.held, stops);
                // One that is complete may yet turn out to lie within the marker.
                let doubtful = first_start(&self.held, &self.stops);
                doubtful.unwrap_or(known).min(begun).min(known)
            }
        };
        let before = self.decoded.0 - self.held.len();
        let text: String = self.held.drain(..cut).collect();
        let shown = before + text.len();
        let mut piece = Piece {
            text,
            ..Piece::default()
        };
        if let Some(tokens) = &mut self.tokens {
            let out =
                |waiting: &Waiting| waiting.end <= shown || (self.stopped && waiting.start < shown);
            while let Some(waiting) = tokens.waiting.pop_front_if(|waiting| out(waiting)) {
                piece.tokens.push(waiting.token);
            }
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(stops: &[&str]) -> TextStream {
        TextStream::new(stops.iter().map(|stop| (*stop).to_owned()).collect(), None)
    }

    fn chunk(bytes: &[u8]) -> Chunk {
        Chunk {
            bytes: bytes.to_vec(),
            tokens: Vec::new(),
        }
    }

    /// The text of `pieces`, and whether it was stopped.
    fn run(stops: &[&str], pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let mut stream = stream(stops);
        let mut shown: Vec<String> = pieces
            .iter()
            .map(|bytes| stream.push(chunk(bytes)).text)
            .collect();
        shown.push(stream.finish().text);
        (shown, stream.stopped())
    }

    #[test]
    fn characters_are_never_cut() {
        let check = |pieces: &[&[u8]], expected: &[&str]| {
            assert_eq!(run(&[], pieces).0, expected, "{pieces:?}");
        };
        check(&[b"a\xC3", b"\xA4b"], &["a", "äb", ""]);
        check(&[b"\xF0\x9F", b"\x98", b"\x80"], &["", "", "😀", ""]);
        check(&[b"\xF0\x9F", b"x"], &["", "\u{FFFD}x", ""]);
        check(&[b"x\xFFy", b"\xE2\x82"], &["x\u{FFFD}y", "", "\u{FFFD}"]);
    }

    #[test]
    fn stop_strings_are_found_across_chunks() {
        let check = |stops: &[&str], pieces: &[&[u8]], expected: &[&str], stopped| {
            let (shown, was_stopped) = run(stops, pieces);
            assert_eq!(
                (shown, was_stopped),
                (
                    expected.iter().map(|text| (*text).to_owned()).collect(),
                    stopped
                )
            );
        };
        check(
            &["END"],
            &[b"ab E", b"N", b"D tail"],
            &["ab ", "", "", ""],
            true,
        );
        check(&["END"], &[b"ab E", b"NT"], &["ab ", "ENT", ""], false);
        check(&["END"], &[b"ab EN"], &["ab ", "EN"], false);
        check(
            &["\n\n", "."],
            &[b"a\n", b"b", b".\n\n"],
            &["a", "\nb", "", ""],
            true,
        );
        check(&["ä!"], &[b"\xC3", b"\xA4", b"!x"], &["", "", "", ""], true);
        // The one that is complete first wins, though the other began earlier.
        check(&["abcd", "bc"], &[b"xab", b"cd"], &["x", "a", ""], true);
    }

    #[test]
    fn behind_the_marker_stop_strings_are_text() {
        let run = |stops: &[&str], pieces: &[&str]| {
            let mut stream = stream(stops).until("<call>");
            let pieces = pieces
                .iter()
                .map(|piece| stream.push(chunk(piece.as_bytes())).text);
            let mut shown = pieces.collect::<Vec<_>>();
            shown.push(stream.finish().text);
            (shown.concat(), stream.stopped())
        };
        let check = |stops: &[&str], pieces: &[&str], expected: &str, stopped| {
            assert_eq!(
                run(stops, pieces),
                (expected.to_owned(), stopped),
                "{pieces:?}"
            );
        };
        check(
            &["END"],
            &["a <call>END</call>", "END"],
            "a <call>END</call>END",
            false,
        );
        check(&["END"], &["a END <call>"], "a ", true);
        check(&["call", "<c"], &["a <c", "all", ">b"], "a <call>b", false);
        check(&["call", "<c"], &["a <c", "al", "m>b"], "a ", true);
        check(&["call"], &["a <cal", "l"], "a <", true);
        check(&[" <"], &["a ", "<call", ">"], "a <call>", false);
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing_before_a_marker(
            text in "[abä]{0,20}",
            cuts in prop::collection::vec(0usize..20, 0..6),
            stops in prop::collection::vec("[abä]{1,4}", 0..3),
        ) {
            let mut stream = TextStream::new(stops.clone().into(), None).until("aba");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| chunk(&text.as_bytes()[pair[0]..pair[1]]));
            let mut shown: String = pieces.map(|piece| stream.push(piece).text).collect();
            shown += &stream.finish().text;
            let before = &text[..text.find("aba").unwrap_or(text.len())];
            let first = stops.iter().filter_map(|stop| before.find(stop).map(|at| (at + stop.len(), at))).min();
            prop_assert_eq!(shown, first.map_or(&*text, |(_, at)| &text[..at]));
            prop_assert_eq!(stream.stopped(), first.is_some());
        }

        #[test]
        fn chunking_changes_nothing(
            bytes in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xC3), Just(0xA4), any::<u8>()], 0..40),
            cuts in prop::collection::vec(0usize..40, 0..8),
            stops in prop::collection::vec("[abä]{1,4}", 0..3),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (shown, stopped) = run(&stops, &pieces);
            let whole = String::from_utf8_lossy(&bytes);
            let first = stops.iter().filter_map(|stop| whole.find(stop).map(|at| (at + stop.len(), at))).min();
            let expected = first.map_or(&*whole, |(_, at)| &whole[..at]);
            prop_assert_eq!(shown.concat(), expected);
            prop_assert_eq!(stopped, first.is_some());
        }
    }
}
