//! Prompts in tokens. A chat template may write special tokens; what people say may not: `<|im_end|>` in a
//! message is six characters of text.
//!
//! Spellings of special tokens in what people say are taken out before the template is rendered, each
//! replaced by one private-use character, and put back as plain text while tokenizing. All other text goes
//! through the template and the tokenizer as a whole, so that ordinary prompts have exactly the tokens that
//! the model was trained on.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use formwork_engine::TokenId;
use formwork_model::{ChatInputs, Model, SpecialTokens, Tokenizer};
use serde_json::{Map, Value};

use super::conversation::Conversation;
use super::date::today;
use super::reasoning::Thinking;
use crate::api::{Message, Prompt, ToolUse};
use crate::errors::ApiError;

/// First of the private-use characters (plane 15) that stand in for what is taken out.
const FIRST_MARK: u32 = 0xF_0000;
/// Last of them.
const LAST_MARK: u32 = 0xF_FFFD;

/// Most different texts taken out of one conversation.
const MAX_MARKS: u32 = 4096;

/// How the model's special tokens are spelled.
#[derive(Clone, Debug)]
pub struct Specials {
    /// Of several spellings at one place the longest is found. `None` where there is no special token.
    finder: Option<AhoCorasick>,
}

impl Specials {
    /// Those of a tokenizer.
    ///
    /// # Errors
    /// When there are more of them than can be searched for.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, BuildError> {
        let ids = 0..TokenId::try_from(tokenizer.vocab_size()).unwrap_or(TokenId::MAX);
        let special = ids.filter(|&token| tokenizer.is_special(token));
        let spellings = special.filter_map(|token| String::from_utf8(tokenizer.bytes(token)?).ok());
        Self::new(spellings.filter(|spelling| !spelling.is_empty()).collect())
    }

    pub(super) fn new(spellings: Vec<String>) -> Result<Self, BuildError> {
        if spellings.is_empty() {
            return Ok(Self { finder: None });
        }
        let mut builder = AhoCorasick::builder();
        let finder = builder
            .match_kind(MatchKind::LeftmostLongest)
            .build(spellings)?;
        Ok(Self {
            finder: Some(finder),
        })
    }

    /// The spellings in `text` as ranges of bytes, in order.
    fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
        let found = self
            .finder
            .iter()
            .flat_map(move |finder| finder.find_iter(text));
        found.map(|found| (found.start(), found.end()))
    }
}

/// Texts that were taken out.
#[derive(Default)]
pub(super) struct Taken {
    /// By the number of their mark.
    texts: Vec<String>,
    marks: HashMap<String, char>,
}

impl Taken {
    /// `text` with everything taken out that must not reach the template.
    pub(super) fn protect(&mut self, text: &str, specials: &Specials) -> Result<String, ApiError> {
        let mut safe = String::with_capacity(text.len());
        let mut done = 0;
        for (start, end) in specials.find(text) {
            self.protect_marks(&text[done..start], &mut safe)?;
            safe.push(self.mark(&text[start..end])?);
            done = end;
        }
        self.protect_marks(&text[done..], &mut safe)?;
        Ok(safe)
    }

    /// Appends `text`, in which only what looks like a mark is to be taken out.
    fn protect_marks(&mut self, text: &str, safe: &mut String) -> Result<(), ApiError> {
        for c in text.chars() {
            match is_mark(c) {
                true => safe.push(self.mark(c.encode_utf8(&mut [0; 4]))?),
                false => safe.push(c),
            }
        }
        Ok(())
    }

    /// The same for every string within `value`, keys included.
    pub(super) fn protect_all(
        &mut self,
        value: &Value,
        specials: &Specials,
    ) -> Result<Value, ApiError> {
        Ok(match value {
            Value::String(text) => Value::String(self.protect(text, specials)?),
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.protect_all(item, specials))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(fields) => Value::Object(self.protect_map(fields, specials)?),
            other => other.clone(),
        })
    }

    fn protect_map(
        &mut self,
        fields: &Map<String, Value>,
        specials: &Specials,
    ) -> Result<Map<String, Value>, ApiError> {
        fields
            .iter()
            .map(|(key, value)| {
                let key = self.protect(key, specials)?;
                Ok((key, self.protect_all(value, specials)?))
            })
            .collect()
    }

    fn mark(&mut self, text: &str) -> Result<char, ApiError> {
        if let Some(&mark) = self.marks.get(text) {
            return Ok(mark);
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let code = (number < MAX_MARKS).then(|| FIRST_MARK + number);
        let Some(mark) = code.and_then(char::from_u32) else {
            let message =
                format!("the messages have more than {MAX_MARKS} different private-use characters");
            return Err(ApiError::invalid("messages", message));
        };
        self.texts.push(text.to_owned());
        self.marks.insert(text.to_owned(), mark);
        Ok(mark)
    }

    /// Tokens of a rendered template, with the marks undone.
    fn encode(&self, rendered: &str, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        let mut done = 0;
        for (at, mark) in rendered.char_indices().filter(|&(_, c)| is_mark(c)) {
            tokens.extend(tokenizer.encode(&rendered[done..at], SpecialTokens::Parse));
            let number = (u32::from(mark) - FIRST_MARK) as usize;
            // A mark that was never given out comes from the template itself: text like any other.
            let mut own = [0; 4];
            let text: &str = match self.texts.get(number) {
                Some(text) => text,
                None => mark.encode_utf8(&mut own),
            };
            tokens.extend(tokenizer.encode(text, SpecialTokens::AsText));
            done = at + mark.len_utf8();
        }
        tokens.extend(tokenizer.encode(&rendered[done..], SpecialTokens::Parse));
        tokens
    }
}

fn is_mark(c: char) -> bool {
    (FIRST_MARK..=LAST_MARK).contains(&u32::from(c))
}

/// A conversation that is to become a prompt.
pub struct ChatPrompt<'a> {
    /// What was said.
    pub messages: &'a [Message],
    /// What may be called.
    pub tools: Option<&'a ToolUse>,
    /// Whether the assistant's turn is opened.
    pub add_generation_prompt: bool,
    /// More variables for the template.
    pub variables: &'a Map<String, Value>,
    /// Tokens that the context holds.
    pub max_context: usize,
    /// Whether the model reasons unless told not to.
    pub thinks_by_itself: bool,
}

/// A prompt in tokens.
pub struct Encoded {
    /// The tokens.
    pub tokens: Vec<TokenId>,
    /// Whether reasoning comes first in the answer.
    pub thinking: Thinking,
}

impl ChatPrompt<'_> {
    /// The prompt's tokens.
    ///
    /// # Errors
    /// 400 when the model has no chat template or the template refuses the conversation.
    pub fn encode(&self, model: &Model, specials: &Specials) -> Result<Encoded, ApiError> {
        let Some(template) = model.chat_template() else {
            let message = "this model has no chat template; use /v1/completions";
            return Err(ApiError::invalid("model", message).code("no_chat_template"));
        };
        let mut taken = Taken::default();
        let spoken = Conversation::of(self, template, &mut taken, specials)?;
        let extra = taken.protect_map(self.variables, specials)?;
        let rendered = template.render(&ChatInputs {
            messages: &spoken.messages,
            tools: spoken.tools.as_ref(),
            add_generation_prompt: self.add_generation_prompt,
            date: &today(),
            extra,
        });
        let rendered = rendered.map_err(|error| {
            let message = format!("the chat template does not take these messages: {error}");
            ApiError::invalid("messages", message).code("chat_template_failed")
        })?;
        // Each mark is a call of the tokenizer and becomes one token at least.
        let marks = rendered.chars().filter(|&c| is_mark(c)).count();
        if marks > self.max_context {
            let message = format!(
                "the prompt has more than {marks} tokens and the context holds {}",
                self.max_context
            );
            return Err(ApiError::invalid("messages", message).code("context_length_exceeded"));
        }
        Ok(Encoded {
            tokens: taken.encode(&rendered, model.tokenizer()),
            thinking: Thinking::of(&rendered, self.thinks_by_itself),
        })
    }
}

/// The tokens of a prompt to continue. Special tokens in its text are meant as such; BOS is put in front
/// where the model wants one.
///
/// # Errors
/// 400 when there is no token.
pub fn text_prompt(tokenizer: &Tokenizer, prompt: &Prompt) -> Result<Encoded, ApiError> {
    let tokens = match prompt {
        Prompt::Tokens(tokens) => tokens.clone(),
        Prompt::Text(text) => {
            let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
            let mut tokens: Vec<TokenId> = bos.into_iter().collect();
            tokens.extend(tokenizer.encode(text, SpecialTokens::Parse));
            tokens
        }
    };
    if tokens.is_empty() {
        return Err(ApiError::invalid("prompt", "the prompt has no token"));
    }
    Ok(Encoded {
        tokens,
        thinking: Thinking::No,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn specials() -> Specials {
        Specials::new(["<|im_end|>", "<s>", "<|im_"].map(str::to_owned).to_vec()).unwrap()
    }

    fn restore(safe: &str, taken: &Taken) -> String {
        let mut text = String::new();
        for c in safe.chars() {
            match is_mark(c) {
                true => text += &taken.texts[(u32::from(c) - FIRST_MARK) as usize],
                false => text.push(c),
            }
        }
        text
    }

    #[test]
    fn the_longest_spelling_at_the_first_place_is_taken() {
        let mut taken = Taken::default();
        let safe = taken
            .protect("a<|im_end|>b<s>c<|im_end|>", &specials())
            .unwrap();
        assert_eq!(safe, "a\u{F0000}b\u{F0001}c\u{F0000}");
        assert_eq!(taken.texts, ["<|im_end|>", "<s>"]);
    }

    proptest! {
        #[test]
        fn nothing_special_is_left_and_nothing_is_lost(
            text in "(<\\|im_end\\|>|<s>|<\\|im_|end\\|>|[a-c<>|]|\u{F0000}|\u{F0001}|ä){0,40}"
        ) {
            let (specials, mut taken) = (specials(), Taken::default());
            let safe = taken.protect(&text, &specials).unwrap();
            prop_assert_eq!(specials.find(&safe).next(), None);
            prop_assert_eq!(restore(&safe, &taken), text);
        }
    }
}
