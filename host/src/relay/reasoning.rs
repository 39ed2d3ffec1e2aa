//! Tells a reasoning section apart from the answer that follows it.

use super::held::held;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Reads one answer that may begin with a section.
#[derive(Debug)]
pub(super) struct ReasoningScanner {
    pending: String,
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    /// A section may begin.
    Before,
    /// At its start: white space there is not part of it.
    Opened,
    Within,
    /// Behind it: white space there is not part of the answer.
    Closed,
    Over,
}

impl ReasoningScanner {
    /// `begun` tells whether the prompt has begun the section.
    pub(super) fn new(begun: bool) -> Self {
        Self {
            pending: String::new(),
            state: if begun { State::Opened } else { State::Before },
        }
    }

    /// Takes in `text`; gives back reasoning and leaves the answer in `text`.
    pub(super) fn push(&mut self, text: &mut String) -> String {
        let mut reasoning = String::new();
        if self.state == State::Over {
            return reasoning;
        }
        self.pending.push_str(text);
        text.clear();
        while self.step(text, &mut reasoning) {}
        reasoning
    }

    /// Nothing more comes: what was held back belongs where it stands.
    pub(super) fn finish(&mut self, text: &mut String) -> String {
        let rest = std::mem::take(&mut self.pending);
        match self.state {
            State::Within => return rest,
            State::Before => text.push_str(&rest),
            State::Opened | State::Closed | State::Over => {}
        }
        String::new()
    }

    /// Understands the next part of what is pending; `false` when more text is needed.
    fn step(&mut self, content: &mut String, reasoning: &mut String) -> bool {
        match self.state {
            State::Before => {
                let begun = self.pending.trim_start();
                if let Some(rest) = begun.strip_prefix(OPEN) {
                    self.pending = rest.to_owned();
                    self.state = State::Opened;
                } else if OPEN.starts_with(begun) {
                    return false;
                } else {
                    self.state = State::Over;
                }
            }
            State::Opened | State::Closed => {
                self.pending = self.pending.trim_start().to_owned();
                if self.pending.is_empty() {
                    return false;
                }
                self.state = match self.state {
                    State::Opened => State::Within,
                    _ => State::Over,
                };
            }
            State::Within => {
                let Some(at) = self.pending.find(CLOSE) else {
                    let shown = self.pending.len() - held(&self.pending, CLOSE);
                    reasoning.extend(self.pending.drain(..shown));
                    return false;
                };
                reasoning.push_str(self.pending[..at].trim_end());
                self.pending.drain(..at + CLOSE.len());
                self.state = State::Closed;
            }
            State::Over => {
                content.push_str(&std::mem::take(&mut self.pending));
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasoning and answer, fed in pieces of `size` characters.
    fn read(text: &str, begun: bool, size: usize) -> (String, String) {
        let mut scanner = ReasoningScanner::new(begun);
        let (mut reasoning, mut answer) = (String::new(), String::new());
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            let mut text: String = piece.iter().collect();
            reasoning += &scanner.push(&mut text);
            answer += &text;
        }
        let mut text = String::new();
        reasoning += &scanner.finish(&mut text);
        (reasoning, answer + &text)
    }

    #[test]
    fn reasoning_and_answer_are_told_apart() {
        for (text, begun, reasoning, answer) in [
            (
                "\nI see < 2 </thin\n\n</think>\n\n{\"a\": 1}\n",
                true,
                "I see < 2 </thin",
                "{\"a\": 1}\n",
            ),
            (
                "<think>\nhm\n</think>\nyes </think>",
                false,
                "hm",
                "yes </think>",
            ),
            ("yes <think>", false, "", "yes <think>"),
            (" <thin", false, "", " <thin"),
            ("hm </th", true, "hm </th", ""),
            ("</think>x", true, "", "x"),
            ("", false, "", ""),
        ] {
            for size in [1, 2, 3, 7, 100] {
                let read = read(text, begun, size);
                assert_eq!(
                    (read.0.as_str(), read.1.as_str()),
                    (reasoning, answer),
                    "{text:?} by {size}"
                );
            }
        }
    }
}
