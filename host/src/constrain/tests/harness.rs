//! A pretend model that walks plans, and checks what must hold at each token.

use super::super::{Guided, Planner, Reports, Setting};
use formwork_engine::{After, Constraint, ConstraintError, TokenId};
use formwork_sandbox::{
    Action, Fallback, Field, GrammarLimits, Grammars, GuestError, LatePolicy, LogLine, Observed,
    RetryPolicy, Source, Value, Verdict, Vocabulary,
};
use std::collections::VecDeque;
use std::sync::Arc;
use toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie, TokenizerEnv};

pub(super) const MAX_TOKENS: usize = 400;

/// All bytes, some longer tokens that straddle template seams, and one end token.
pub(super) fn vocabulary() -> Vocabulary {
    build(None)
}

/// The same without a token for one byte; its tokenizer leaves the byte out, as real ones do.
pub(super) fn vocabulary_without(byte: u8) -> Vocabulary {
    build(Some(byte))
}

struct Leaky(ApproximateTokEnv, Option<u8>);

impl TokenizerEnv for Leaky {
    fn tok_trie(&self) -> &TokTrie {
        self.0.tok_trie()
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        let kept: Vec<u8> = text
            .iter()
            .copied()
            .filter(|&byte| Some(byte) != self.1)
            .collect();
        self.0.tokenize_bytes(&kept)
    }
}

fn build(missing: Option<u8>) -> Vocabulary {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
    let longer = [
        "{\"", "\":", "\":\"", "\"}", "\",\"", "ab", "abc", "x\"", " x", "12",
    ];
    words.extend(longer.iter().map(|w| w.as_bytes().to_vec()));
    words.push(b"\xFF<|end|>".to_vec());
    let end = words.len() as TokenId - 1;
    if let Some(byte) = missing {
        words[byte as usize] = b"\xFF<|unused|>".to_vec();
    }
    let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
    let env = Arc::new(Leaky(ApproximateTokEnv::new(trie), missing));
    Vocabulary::new("test", env, words.len() as u32, vec![end]).unwrap()
}

pub(super) type Plan = Box<dyn FnMut(Observed) -> Result<Vec<Action>, GuestError> + Send>;
pub(super) type Check = Box<dyn FnMut(&Value) -> Verdict + Send>;

pub(super) struct Scripted {
    pub(super) plan: Plan,
    pub(super) check: Check,
}

impl Planner for Scripted {
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        (self.plan)(observed)
    }

    fn check(&mut self, value: &Value) -> Result<Verdict, GuestError> {
        Ok((self.check)(value))
    }

    fn take_log(&mut self) -> Vec<LogLine> {
        Vec::new()
    }
}

pub(super) struct Bench {
    pub(super) vocabulary: Vocabulary,
    pub(super) grammars: Arc<Grammars>,
}

/// What came out of a walk.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) tokens: Vec<TokenId>,
    /// Contexts, as text, at each sampled position.
    pub(super) contexts: Vec<String>,
    pub(super) reports: Arc<Reports>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(vocabulary())
    }

    pub(super) fn with(vocabulary: Vocabulary) -> Self {
        let grammars =
            Grammars::new(Arc::new(vocabulary.clone()), GrammarLimits::default()).unwrap();
        Self {
            vocabulary,
            grammars,
        }
    }

    pub(super) fn field(&self, name: &str, regex: &str) -> Field {
        let grammar = self.grammars.compile(&Source::Regex(regex.into())).unwrap();
        Field {
            name: name.into(),
            matcher: grammar.start(),
            max_tokens: 20,
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

    /// One plan, then nothing; the model wants to say `wants`, one entry per field attempt.
    pub(super) fn run(
        &self,
        actions: Vec<Action>,
        wants: &[&str],
        check: impl FnMut(&Value) -> Verdict + Send + 'static,
    ) -> Result<Outcome, ConstraintError> {
        let mut plans = VecDeque::from([actions]);
        let plan = Box::new(move |_| Ok(plans.pop_front().unwrap_or_default()));
        self.walk(
            Scripted {
                plan,
                check: Box::new(check),
            },
            wants,
        )
    }

    pub(super) fn walk(
        &self,
        planner: Scripted,
        wants: &[&str],
    ) -> Result<Outcome, ConstraintError> {
        let reports = Reports::new();
        let setting = Setting {
            vocabulary: self.vocabulary.clone(),
            temperature: 0.0,
            max_tokens: MAX_TOKENS,
            on_late: LatePolicy::Hold,
            reports: Arc::clone(&reports),
        };
        let mut guided = Guided::new(Box::new(planner), setting);
        let mut model = Model {
            wants: wants.iter().map(|w| w.as_bytes().to_vec()).collect(),
        };
        let (mut tokens, mut contexts, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        let mut sampled = None;
        loop {
            let edit = guided.advance(sampled)?;
            assert!(
                tokens.len() <= MAX_TOKENS,
                "the engine would have ended the sequence"
            );
            assert!(edit.keep <= tokens.len());
            tokens.truncate(edit.keep);
            tokens.extend(&edit.append);
            assert_eq!(guided.committed(), tokens.len());
            let finished = edit.after == After::Finish;
            let released = if finished {
                tokens.len()
            } else {
                edit.released
            };
            let text = self.spell(&tokens[..released]);
            let common = text.len().min(shown.len());
            assert_eq!(text[..common], shown[..common], "shown text was taken back");
            if text.len() > shown.len() {
                shown = text;
            }
            if finished {
                let text = String::from_utf8(shown).unwrap();
                return Ok(Outcome {
                    text,
                    tokens,
                    contexts,
                    reports,
                });
            }
            let mask = guided.mask()?;
            contexts.push(String::from_utf8_lossy(&self.spell(&tokens)).into_owned());
            let token = model.choose(&self.vocabulary, &mask);
            tokens.push(token);
            sampled = Some(token);
        }
    }

    pub(super) fn spell(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens
            .iter()
            .flat_map(|&t| self.vocabulary.bytes(t))
            .copied()
            .collect()
    }
}

/// Says what it wants to, as far as the mask lets it: the longest fitting token, the end when it is through.
struct Model {
    wants: VecDeque<Vec<u8>>,
}

impl Model {
    fn choose(&mut self, vocabulary: &Vocabulary, mask: &toktrie::SimpleVob) -> TokenId {
        assert!(!mask.is_zero(), "the mask is empty");
        let want = self.wants.front().cloned().unwrap_or_default();
        let fitting = vocabulary
            .trie()
            .all_prefixes(&want)
            .into_iter()
            .filter(|&t| mask.is_allowed(t))
            .max_by_key(|&t| vocabulary.bytes(t).len());
        if let Some(token) = fitting {
            let said = vocabulary.bytes(token).len();
            if said == want.len() {
                self.wants.pop_front();
            } else {
                self.wants[0].drain(..said);
            }
            return token;
        }
        let end = vocabulary.end()[0];
        if mask.is_allowed(end) {
            return end;
        }
        let mut first = None;
        mask.iter_set_entries(|token| {
            first.get_or_insert(token as TokenId);
        });
        first.unwrap()
    }
}

pub(super) fn write(text: &str) -> Action {
    Action::Write(text.as_bytes().to_vec())
}

pub(super) fn accept(_: &Value) -> Verdict {
    Verdict::Accept
}
