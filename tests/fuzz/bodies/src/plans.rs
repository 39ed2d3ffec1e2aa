//! Plans of arbitrary actions, carried out on one sequence by a model that says anything.

use crate::constrain::{Guided, Planner, Reports, Setting};
use crate::dice::Dice;
use crate::world::{compile, grammars};
use formwork_engine::{After, Constraint};
use formwork_sandbox::{
    Action, Failure, FailureKind, Fallback, Field, GuestError, LatePolicy, LogLine, Observed,
    Retry, RetryPolicy, SimpleVob, Source, TokenId, Value, Verdict, Vocabulary,
};
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens of a sequence, and plans after which a guest must come to an end.
const MAX_TOKENS: usize = 120;
const PLANS: usize = 6;

const TEXTS: &[&[u8]] = &[
    b"",
    b"{\"",
    b"\":\"",
    b"ab",
    b"c",
    b"x",
    "日本".as_bytes(),
    b"\xe6\x97",
    b"\xff\xfe",
    b" ",
    b"\"}",
];

const REGEXES: &[&str] = &[
    "[a-c]{1,5}",
    "[0-9]{2}",
    "",
    "(ab|abc|b)*",
    "日本?語?",
    "\"[^\"]*\"",
    "x+y",
    "(a|[^a])*",
    "null|true",
];

/// A piece of the output, as the guest means it.
#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    Field(String),
    Sampled(SimpleVob),
}

/// What the guest asked for, beside the walk that carries it out.
#[derive(Default)]
struct Record {
    pieces: Vec<Piece>,
    /// Fields of the last plan, by name and regex.
    due: Vec<(String, &'static str)>,
    finished: bool,
}

struct Guest {
    dice: Dice,
    record: Arc<Mutex<Record>>,
    plans: usize,
    fields: usize,
    /// The attempt that has to follow, and what of the value has to stay in it.
    kept: (String, u32, Vec<u8>),
}

impl Guest {
    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&mut self) -> Vec<u8> {
        self.dice.pick(TEXTS).to_vec()
    }

    fn temperature(&mut self) -> Option<f32> {
        *self.dice.pick(&[None, Some(0.0), Some(0.7)])
    }

    fn field(&mut self) -> (Field, &'static str) {
        let regex = *self.dice.pick(REGEXES);
        let grammar = compile(&Source::Regex(regex.into())).expect("these compile");
        self.fields += 1;
        let hidden = if self.dice.once_in(5) { "?" } else { "" };
        let field = Field {
            name: format!("{hidden}{}", self.fields),
            matcher: grammar.start(),
            max_tokens: 1 + self.dice.roll(9) as u32,
            temperature: self.temperature(),
            check: self.dice.once_in(2),
            retry: RetryPolicy {
                attempts: 1 + self.dice.roll(3) as u32,
                heat: 0.5,
                hint: self
                    .dice
                    .once_in(2)
                    .then(|| "({value}: {reason}) ".to_owned()),
                exhausted: match self.dice.roll(3) {
                    0 => Fallback::Fail,
                    1 => Fallback::Write(self.text()),
                    _ => Fallback::Accept,
                },
            },
        };
        (field, regex)
    }

    fn mask(&mut self) -> SimpleVob {
        let size = grammars().vocabulary().size() as usize;
        let mut mask = SimpleVob::alloc(size);
        for _ in 0..=self.dice.roll(4) {
            mask.allow_token(self.dice.roll(size - 9) as TokenId);
        }
        mask
    }

    fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        let (mut pieces, mut due) = (Vec::new(), Vec::new());
        for _ in 0..self.dice.roll(6) {
            if self.dice.once_in(2) {
                let (field, regex) = self.field();
                due.push((field.name.clone(), regex));
                pieces.push(Piece::Field(field.name.clone()));
                actions.push(Action::Field(field));
            } else {
                let text = self.text();
                pieces.push(Piece::Text(text.clone()));
                actions.push(Action::Write(text));
            }
        }
        let finish = self.plans == PLANS || self.dice.once_in(4);
        if finish {
            actions.push(Action::Finish);
        } else if self.dice.once_in(4) {
            let mask = self.mask();
            pieces.push(Piece::Sampled(mask.clone()));
            let temperature = self.temperature();
            let mask = Arc::new(mask);
            actions.push(Action::Sample { mask, temperature });
        }
        let mut record = self.record();
        record.pieces.extend(pieces);
        record.due = due;
        record.finished = finish;
        drop(record);
        actions
    }
}

impl Planner for Guest {
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        assert!(!self.record().finished, "a plan after the last one");
        assert_eq!(self.plans == 0, observed == Observed::Started);
        match observed {
            Observed::Started => {}
            Observed::Sampled(token) => {
                let mut record = self.record();
                let Some(Piece::Sampled(mask)) = record.pieces.pop() else {
                    panic!("token {token} was not asked for");
                };
                assert!(mask.is_allowed(token), "token {token} was not allowed");
                let bytes = grammars().vocabulary().bytes(token).to_vec();
                record.pieces.push(Piece::Text(bytes));
            }
            Observed::Completed(values) => {
                let due = std::mem::take(&mut self.record().due);
                let names: Vec<_> = values.iter().map(|value| &value.field).collect();
                assert_eq!(names, due.iter().map(|(name, _)| name).collect::<Vec<_>>());
            }
        }
        self.plans += 1;
        if self.dice.once_in(40) {
            let failure = Failure::new(FailureKind::Internal, "the guest gave up");
            return Err(GuestError::Failure(failure));
        }
        Ok(self.actions())
    }

    fn check(&mut self, value: &Value) -> Result<Verdict, GuestError> {
        let due = self.record().due.clone();
        let (_, regex) = due
            .iter()
            .find(|(name, _)| *name == value.field)
            .expect("a field of this plan is checked");
        let whole = regex::bytes::Regex::new(&format!(r"\A(?:{regex})\z")).expect("these compile");
        assert!(whole.is_match(&value.bytes), "{regex} allowed {value:?}");
        let (name, attempt, kept) = std::mem::take(&mut self.kept);
        let goes_on = name == value.field && value.attempts == attempt;
        assert!(
            !goes_on || value.bytes.starts_with(&kept),
            "{value:?} {kept:?}"
        );
        Ok(match self.dice.roll(5) {
            0 => {
                let from = self.dice.roll(value.bytes.len() + 1);
                let kept = value.bytes[..from].to_vec();
                self.kept = (value.field.clone(), value.attempts + 1, kept);
                let reason = "no {value} and {reason}".into();
                Verdict::Retry(Retry { reason, from })
            }
            1 => {
                let text = self.text();
                Verdict::Replace(text)
            }
            _ => Verdict::Accept,
        })
    }

    fn take_log(&mut self) -> Vec<LogLine> {
        Vec::new()
    }
}

/// The tokens as the engine has them, and what a client was shown.
struct Sequence {
    vocabulary: Vocabulary,
    tokens: Vec<TokenId>,
    shown: Vec<u8>,
}

impl Sequence {
    fn spell(&self, tokens: &[TokenId]) -> Vec<u8> {
        let bytes = tokens.iter().map(|&token| self.vocabulary.bytes(token));
        bytes.collect::<Vec<_>>().concat()
    }

    fn show(&mut self, released: usize) {
        let text = self.spell(&self.tokens[..released]);
        let common = text.len().min(self.shown.len());
        assert_eq!(
            text[..common],
            self.shown[..common],
            "shown text was taken back"
        );
        if text.len() > self.shown.len() {
            self.shown = text;
        }
    }
}

/// Any plans, any verdicts and any model: the walk ends in a complete output, at the request's limit or with a
/// typed error; shown text is never taken back; the engine's tokens are those that the walk counts.
pub fn plan(data: &[u8]) {
    let (half, vocabulary) = (data.len() / 2, grammars().vocabulary().clone());
    let (record, reports) = (Arc::<Mutex<Record>>::default(), Reports::new());
    let guest = Guest {
        dice: Dice::new(&data[..half], data),
        record: Arc::clone(&record),
        plans: 0,
        fields: 0,
        kept: Default::default(),
    };
    let setting = Setting {
        vocabulary: vocabulary.clone(),
        temperature: 0.5,
        max_tokens: MAX_TOKENS,
        on_late: LatePolicy::Hold,
        reports: Arc::clone(&reports),
    };
    let mut guided = Guided::new(Box::new(guest), setting);
    let mut sequence = Sequence {
        vocabulary,
        tokens: Vec::new(),
        shown: Vec::new(),
    };
    let mut model = Dice::new(&data[half..], data);
    if carry_out(&mut guided, &mut sequence, &mut model) {
        let record = record.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(record.finished, "an end that nobody planned");
        compare(&record.pieces, &sequence.shown, &reports);
    }
}

/// Whether the output is complete, rather than cut or failed.
fn carry_out(guided: &mut Guided, sequence: &mut Sequence, model: &mut Dice) -> bool {
    let mut sampled = None;
    // Retries take tokens back: rounds are bounded by attempts, not by tokens.
    for _ in 0..100 * MAX_TOKENS {
        let Ok(edit) = guided.advance(sampled) else {
            return false;
        };
        assert!(edit.keep <= sequence.tokens.len());
        sequence.tokens.truncate(edit.keep);
        sequence.tokens.extend(&edit.append);
        assert_eq!(guided.committed(), sequence.tokens.len());
        assert!(edit.released <= sequence.tokens.len());
        match edit.after {
            After::Finish => {
                sequence.show(sequence.tokens.len());
                return true;
            }
            After::Sample { temperature, .. } => {
                assert!(temperature.is_none_or(|heat| heat.is_finite() && heat >= 0.0));
                sequence.show(edit.released);
            }
        }
        if sequence.tokens.len() >= MAX_TOKENS {
            return false;
        }
        let Ok(mask) = guided.mask() else {
            return false;
        };
        assert!(!mask.is_zero(), "an empty mask");
        let token = *model.pick(&mask.to_list());
        sequence.tokens.push(token);
        sampled = Some(token);
    }
    panic!("the walk does not end");
}

/// The output is what was written and decoded, in the order of the plans.
fn compare(pieces: &[Piece], output: &[u8], reports: &Reports) {
    let fields = reports.fields();
    let mut reported = fields.iter();
    let mut at = 0;
    for (index, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => {
                let shown = String::from_utf8_lossy(output);
                let fits = output[at..].starts_with(text);
                assert!(
                    fits,
                    "piece {index} of {pieces:?} is not at {at} of {shown:?}, {fields:?}"
                );
                at += text.len();
            }
            // Not reported: what it decoded is not known here, nor where the rest begins.
            Piece::Field(name) if name.starts_with('?') => return,
            Piece::Field(name) => {
                let field = reported.next().expect("each field is reported");
                assert_eq!((&field.name, field.start), (name, at), "piece {index}");
                at = field.end;
            }
            Piece::Sampled(_) => panic!("a sampled token was not told to the guest"),
        }
    }
    assert_eq!(at, output.len(), "text that nobody planned");
}
