//! Reasoning sections: what a model writes between `<think>` and `</think>` is free, and a format begins
//! after it.

use std::sync::Arc;

use formwork_model::{ChatInputs, ChatTemplate};
use formwork_sandbox::{
    Action, Failure, Fallback, Field, Grammars, GuestError, LogLine, Matcher, Observed,
    RetryPolicy, Source, Value, Verdict,
};
use serde_json::{Map, json};

use crate::constrain::Planner;

/// Begins and ends a section.
const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// Free text up to the first [`CLOSE`].
const SECTION: &str = "start: section\nsection[lazy]: /(?s:.*)<\\/think>/";

/// Whether an answer begins with a reasoning section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// It does not.
    No,
    /// The prompt has begun one.
    Begun,
    /// The model begins one itself.
    Ahead,
}

impl Thinking {
    /// What a rendered chat prompt asks for. `by_itself` is what [`thinks_by_itself`] said of its template.
    pub(super) fn of(rendered: &str, by_itself: bool) -> Self {
        let end = rendered.trim_end();
        match by_itself {
            _ if end.ends_with(OPEN) => Self::Begun,
            true if !end.ends_with(CLOSE) => Self::Ahead,
            _ => Self::No,
        }
    }
}

/// Whether the template is of a model that reasons unless told not to: then saying `enable_thinking: false`
/// puts a section into the prompt that is closed already.
pub fn thinks_by_itself(template: &ChatTemplate) -> bool {
    let messages = json!([{"role": "user", "content": "x"}]);
    let render = |extra| {
        let rendered = template.render(&ChatInputs {
            messages: &messages,
            tools: None,
            add_generation_prompt: true,
            date: "2000-01-01",
            extra,
        });
        rendered.unwrap_or_default()
    };
    let closed = |text: &str| text.trim_end().ends_with(CLOSE);
    let mut off = Map::new();
    off.insert("enable_thinking".to_owned(), json!(false));
    closed(&render(off)) && !closed(&render(Map::new()))
}

/// A plugin's plans, after a reasoning section.
pub(super) struct Reasoned<P> {
    inner: P,
    stage: Stage,
}

enum Stage {
    /// The section is still to be begun.
    Before(Vec<Action>),
    Within,
    Over,
}

impl<P: Planner> Reasoned<P> {
    /// Puts the section in front of `inner`.
    ///
    /// # Errors
    /// When the section's grammar does not compile, which no request is at fault for.
    pub(super) fn new(
        inner: P,
        grammars: &Arc<Grammars>,
        thinking: Thinking,
        max_tokens: u32,
    ) -> Result<Self, Failure> {
        let section = grammars.compile(&Source::Lark(SECTION.to_owned()))?;
        let mut actions = Vec::new();
        if thinking == Thinking::Ahead {
            actions.push(Action::Write(format!("{OPEN}\n").into_bytes()));
        }
        actions.push(Action::Field(field(section.start(), max_tokens)));
        Ok(Self {
            inner,
            stage: Stage::Before(actions),
        })
    }
}

/// The leading `?` keeps it out of reports.
fn field(matcher: Matcher, max_tokens: u32) -> Field {
    Field {
        name: "?reasoning".to_owned(),
        matcher,
        max_tokens,
        temperature: None,
        check: false,
        retry: RetryPolicy {
            attempts: 1,
            heat: 0.0,
            hint: None,
            exhausted: Fallback::Fail,
        },
    }
}

impl<P: Planner> Planner for Reasoned<P> {
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Before(actions) => {
                self.stage = Stage::Within;
                Ok(actions)
            }
            Stage::Within => {
                let mut actions = self.inner.plan(Observed::Started)?;
                actions.insert(0, Action::Write(b"\n\n".to_vec()));
                Ok(actions)
            }
            Stage::Over => self.inner.plan(observed),
        }
    }

    fn check(&mut self, value: &Value) -> Result<Verdict, GuestError> {
        self.inner.check(value)
    }

    fn take_log(&mut self) -> Vec<LogLine> {
        self.inner.take_log()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_sandbox::{GrammarLimits, Vocabulary};

    #[test]
    fn prompts_say_whether_there_is_reasoning() {
        use Thinking::{Ahead, Begun, No};
        for (rendered, by_itself, expected) in [
            ("user: x\nassistant:", false, No),
            ("user: x\nassistant:", true, Ahead),
            ("assistant:<think>\n", false, Begun),
            ("assistant:<think>\n", true, Begun),
            ("assistant:<think>\n\n</think>\n\n", true, No),
            ("user: <think> why\nassistant:", false, No),
        ] {
            assert_eq!(Thinking::of(rendered, by_itself), expected, "{rendered:?}");
        }
    }

    #[test]
    fn templates_say_whether_the_model_reasons() {
        let switch = "{% if enable_thinking is defined and enable_thinking is false %}\
                      <think>\n\n</think>\n\n{% endif %}";
        for (source, expected) in [
            (switch, true),
            ("A:", false),
            ("A:<think>\n", false),
            ("A:<think></think>", false),
        ] {
            let template = ChatTemplate::new(source, "", "").unwrap();
            assert_eq!(thinks_by_itself(&template), expected, "{source}");
        }
    }

    /// A plugin that writes one word.
    struct Word;

    impl Planner for Word {
        fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
            assert!(matches!(observed, Observed::Started));
            Ok(vec![Action::Write(b"word".to_vec()), Action::Finish])
        }

        fn check(&mut self, _: &Value) -> Result<Verdict, GuestError> {
            Ok(Verdict::Accept)
        }

        fn take_log(&mut self) -> Vec<LogLine> {
            Vec::new()
        }
    }

    #[test]
    fn the_format_begins_after_the_section() {
        let model = formwork_model::Model::tiny(1);
        let tokenizer = model.tokenizer();
        let end = tokenizer.end_tokens().to_vec();
        let rows = u32::try_from(model.info().vocab_size).unwrap();
        let vocabulary = Vocabulary::new("tiny", tokenizer.tok_env(), rows, end).unwrap();
        let grammars = Grammars::new(Arc::new(vocabulary), GrammarLimits::default()).unwrap();
        for (thinking, opening) in [
            (Thinking::Begun, None),
            (Thinking::Ahead, Some("<think>\n")),
        ] {
            let mut reasoned = Reasoned::new(Word, &grammars, thinking, 100).unwrap();
            let mut actions = reasoned.plan(Observed::Started).unwrap();
            let Some(Action::Field(mut field)) = actions.pop() else {
                panic!("the section is a field");
            };
            let written = actions.pop().map(|action| match action {
                Action::Write(text) => String::from_utf8(text).unwrap(),
                _ => panic!("only text comes before the section"),
            });
            assert_eq!(written.as_deref(), opening);
            for byte in "a < b <think> </thin </think>".bytes() {
                assert!(!field.matcher.accepting() && !field.matcher.stopped());
                field.matcher.commit(byte.into()).unwrap();
            }
            assert!(
                field.matcher.stopped(),
                "nothing of the section comes after its end"
            );
            let actions = reasoned.plan(Observed::Completed(Vec::new())).unwrap();
            let text = actions.iter().filter_map(|action| match action {
                Action::Write(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            });
            assert_eq!(text.collect::<String>(), "\n\nword");
        }
    }
}
