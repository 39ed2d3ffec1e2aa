//! Tells calls of tools apart from text, piece by piece.
//!
//! The output comes from the stock plugin `formwork/tools`, which writes a call as
//! `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`: the text around the name and the arguments is
//! its template, so that it stands there byte by byte.

use super::held::held;

/// Begins a call.
pub(super) const BEGIN: &str = "<tool_call>";
/// From there to the name.
const BEFORE_NAME: &str = "\n{\"name\": \"";
/// From the name to the arguments.
const BEFORE_ARGUMENTS: &str = "\", \"arguments\": ";
/// From the arguments to the end.
const AFTER_ARGUMENTS: &str = "}\n</tool_call>";

/// News of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallDelta {
    /// Call number `index` begins.
    Begin {
        /// Counted from 0.
        index: usize,
        /// The function.
        name: String,
    },
    /// More of its arguments.
    Arguments {
        /// Which call.
        index: usize,
        /// JSON text, in part.
        text: String,
    },
    /// Its arguments are complete.
    End {
        /// Which call.
        index: usize,
    },
}

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct CallScanner {
    /// Text that was not understood yet.
    pending: String,
    state: State,
    /// Calls whose arguments are complete.
    complete: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    Name,
    Arguments(Json),
    After,
}

/// Where in a JSON object the text stands.
#[derive(Debug, Default)]
struct Json {
    depth: usize,
    quoted: bool,
    escaped: bool,
}

impl Json {
    /// Bytes up to the end of the object, if it ends within `text`.
    fn end(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.quoted => self.escaped = true,
                b'"' => self.quoted = !self.quoted,
                _ if self.quoted => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

impl CallScanner {
    /// Calls that are complete.
    pub(super) fn complete(&self) -> usize {
        self.complete
    }

    /// Takes in `text`; leaves in it what is to be shown as content.
    pub(super) fn push(&mut self, text: &mut String) -> Vec<CallDelta> {
        self.pending.push_str(text);
        text.clear();
        let mut deltas = Vec::new();
        while self.step(text, &mut deltas) {}
        deltas
    }

    /// Nothing more comes: what was held back as the possible start of a call is content.
    pub(super) fn finish(&mut self, text: &mut String) {
        if matches!(self.state, State::Text) {
            let rest = std::mem::take(&mut self.pending);
            let between_calls = self.complete > 0 && rest.trim().is_empty();
            if !between_calls {
                text.push_str(&rest);
            }
        }
    }

    /// Understands the next part of what is pending; `false` when more text is needed for it.
    fn step(&mut self, content: &mut String, deltas: &mut Vec<CallDelta>) -> bool {
        let index = self.complete;
        match &mut self.state {
            State::Text => match self.pending.find(BEGIN) {
                Some(at) => {
                    content.push_str(self.pending[..at].trim_end());
                    self.pending.drain(..at + BEGIN.len());
                    self.state = State::Name;
                    true
                }
                None => {
                    let shown = self.pending.len() - held(&self.pending, BEGIN);
                    content.extend(self.pending.drain(..shown));
                    false
                }
            },
            State::Name => {
                let Some(end) = self.pending.find(BEFORE_ARGUMENTS) else {
                    return false;
                };
                let name = self.pending[..end]
                    .trim_start_matches(BEFORE_NAME)
                    .to_owned();
                self.pending.drain(..end + BEFORE_ARGUMENTS.len());
                deltas.push(CallDelta::Begin { index, name });
                self.state = State::Arguments(Json::default());
                true
            }
            State::Arguments(json) => {
                let end = json.end(&self.pending);
                let length = end.unwrap_or(self.pending.len());
                let text: String = self.pending.drain(..length).collect();
                if !text.is_empty() {
                    deltas.push(CallDelta::Arguments { index, text });
                }
                if end.is_some() {
                    deltas.push(CallDelta::End { index });
                    self.complete += 1;
                    self.state = State::After;
                }
                end.is_some()
            }
            State::After => {
                let Some(at) = self.pending.find(AFTER_ARGUMENTS) else {
                    return false;
                };
                self.pending.drain(..at + AFTER_ARGUMENTS.len());
                self.state = State::Text;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Content and calls, incomplete ones marked, as a client puts them together.
    fn read(pieces: &[&str]) -> (String, Vec<String>) {
        let mut scanner = CallScanner::default();
        let (mut content, mut calls) = (String::new(), Vec::<String>::new());
        for piece in pieces {
            let mut text = (*piece).to_owned();
            for delta in scanner.push(&mut text) {
                match delta {
                    CallDelta::Begin { index, name } => {
                        assert_eq!(index, calls.len());
                        calls.push(format!("{name} "));
                    }
                    CallDelta::Arguments { index, text } => calls[index] += &text,
                    CallDelta::End { index } => calls[index] += " ok",
                }
            }
            content += &text;
        }
        let mut text = String::new();
        scanner.finish(&mut text);
        (content + &text, calls)
    }

    fn call(name: &str, arguments: &str) -> String {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
    }

    #[test]
    fn content_and_calls_are_told_apart() {
        let check = |text: &str, content: &str, calls: &[&str]| {
            let read = read(&[text]);
            assert_eq!(
                (read.0.as_str(), read.1),
                (content, calls.iter().map(|c| (*c).to_owned()).collect()),
                "{text}"
            );
        };
        let f = call("f", r#"{"a":"}\"{","b":[{}]}"#);
        let done = r#"f {"a":"}\"{","b":[{}]} ok"#;
        check("just < text <tool ", "just < text <tool ", &[]);
        check(&f, "", &[done]);
        check(&format!("Let me see.\n\n{f}\n"), "Let me see.", &[done]);
        check(&format!("{f}\n{}", call("g", "{}")), "", &[done, "g {} ok"]);
        check(&f[..45], "", &[&done[..8]]);
        check(&f[..20], "", &[]);
        check(&f[..f.len() - 5], "", &[done]);
        check("a <tool_c", "a <tool_c", &[]);
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            parts in prop::collection::vec(prop_oneof![
                Just(" so <".to_owned()),
                Just("ä<tool_cal\n".to_owned()),
                Just(call("f", r#"{"x":{"y":"\\\"}"},"z":"ö<tool_call>"}"#)),
                Just(call("g", "{}")),
            ], 0..4),
            cuts in prop::collection::vec(0usize..300, 0..12),
            end in 0usize..300,
        ) {
            let text = parts.concat();
            let text = &text[..text.floor_char_boundary(end)];
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| text.floor_char_boundary(cut)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[text]));
        }
    }
}
