//! Drives one format: turns its plans and templates into the host's actions, and finds the check that
//! belongs to a value. The same code runs in the guest and natively.

use crate::decide::{self, Way};
use crate::field::{Judge, Origin};
use crate::plan::End;
use crate::template::Part;
use crate::validated::{self, Faults};
use crate::{
    Failure, Field, Format, Grammar, Mask, Matcher, Observed, Plan, Request, RetryPolicy, Source,
    Value, Values, Verdict,
};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What the host is told to do.
pub(crate) enum Action {
    Sample {
        mask: Mask,
        #[cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]
        temperature: Option<f32>,
    },
    Write(Vec<u8>),
    Field(Walk),
    Finish,
}

/// A field as the host takes it.
pub(crate) struct Walk {
    pub(crate) name: String,
    pub(crate) matcher: Matcher,
    pub(crate) max_tokens: u32,
    pub(crate) temperature: Option<f32>,
    pub(crate) check: bool,
    pub(crate) retry: RetryPolicy,
}

pub(crate) struct Driver<T> {
    format: T,
    max_tokens: u32,
    /// Answer to the first `plan`, made while opening so that a bad grammar is reported there.
    first: Option<Vec<Action>>,
    queue: VecDeque<Part>,
    end: End,
    finished: bool,
    /// Values the format has not been told of.
    fresh: Vec<Value>,
    values: Values,
    /// Fields of the plan being carried out.
    in_flight: Vec<Rc<Field>>,
    /// The choice that ends the plan being carried out.
    choice: Option<Vec<Way>>,
    /// Where in `in_flight` checks have got to.
    checked: Checked,
    grammars: BTreeMap<Source, Compiled>,
}

/// A grammar that fields share.
struct Compiled {
    grammar: Grammar,
    /// Whether masks leave something of a JSON Schema to validation.
    validates: bool,
}

/// Names may repeat, so that a check finds its field by order.
#[derive(Default)]
struct Checked {
    /// Index into `in_flight` after the field checked last.
    next: usize,
    /// That field's attempts, when it is to be tried again.
    retried: Option<u32>,
    /// Where its attempts began.
    faults: Faults,
}

impl<T: Format> Driver<T> {
    pub(crate) fn open(params: &str, request: &Request) -> Result<Self, Failure> {
        let json = &mut serde_json::Deserializer::from_str(params);
        let params: T::Params = serde_path_to_error::deserialize(json).map_err(|error| {
            let path = match error.path().to_string() {
                path if path == "." => "params".to_owned(),
                path => format!("params.{path}"),
            };
            Failure::invalid_params(format!("{path}: {}", error.inner()))
        })?;
        let mut driver = Self {
            format: T::open(params, request)?,
            max_tokens: request.max_tokens,
            first: None,
            queue: VecDeque::new(),
            end: End::AskAgain,
            finished: false,
            fresh: Vec::new(),
            values: Values::default(),
            in_flight: Vec::new(),
            choice: None,
            checked: Checked::default(),
            grammars: BTreeMap::new(),
        };
        driver.ask(Observed::Started)?;
        driver.first = Some(driver.actions()?);
        Ok(driver)
    }

    pub(crate) fn plan(&mut self, seen: Observed) -> Result<Vec<Action>, Failure> {
        if self.finished && self.first.is_none() {
            return Err(Failure::internal(
                "the host goes on after the output was finished; this is a fault of the host",
            ));
        }
        match seen {
            Observed::Started => self.first.take().ok_or_else(|| {
                Failure::internal("the host started the session twice; this is a fault of the host")
            }),
            Observed::Sampled(token) => {
                self.ask(Observed::Sampled(token))?;
                self.actions()
            }
            Observed::Completed(values) => {
                self.complete(values)?;
                if self.queue.is_empty() && matches!(self.end, End::AskAgain) {
                    let values = std::mem::take(&mut self.fresh);
                    self.ask(Observed::Completed(values))?;
                }
                self.actions()
            }
        }
    }

    pub(crate) fn check(&mut self, value: &Value) -> Verdict {
        let goes_on = self
            .checked
            .retried
            .is_some_and(|attempts| value.attempts > attempts);
        let from = self.checked.next - usize::from(goes_on);
        let is_it = |field: &Rc<Field>| field.name == value.field && self.checks(field);
        let found = (from..self.in_flight.len()).find(|&index| is_it(&self.in_flight[index]));
        let Some(index) = found else {
            return Verdict::Fail(Failure::internal(format!(
                "no field `{}` waits for a check",
                value.field
            )));
        };
        let field = self.in_flight[index].clone();
        let mut faults = match goes_on && index + 1 == self.checked.next {
            true => std::mem::take(&mut self.checked.faults),
            false => Faults::default(),
        };
        let invalid = self
            .validating(&field)
            .and_then(|grammar| grammar.validate(&value.bytes).err());
        let verdict = match (invalid, &field.judge) {
            (Some(invalid), _) => Verdict::Retry(faults.retry(invalid)),
            (None, Judge::Closure(check)) => check(value),
            (None, Judge::Format) => self.format.check(value),
            (None, Judge::Nobody) => Verdict::Accept,
        };
        let attempts = self.retry(&field).attempts;
        let again = matches!(verdict, Verdict::Retry(_)) && value.attempts < attempts;
        self.checked = Checked {
            next: index + 1,
            retried: again.then_some(value.attempts),
            faults,
        };
        verdict
    }

    fn ask(&mut self, seen: Observed) -> Result<(), Failure> {
        let plan: Plan = self.format.plan(seen)?;
        if plan.past_end {
            return Err(Failure::internal(
                "the plan goes on after its `finish` or `sample`",
            ));
        }
        if plan.parts.is_empty() && matches!(plan.end, End::AskAgain) {
            return Err(Failure::internal("the plan is empty: nothing would happen"));
        }
        self.queue = plan.parts.into();
        self.end = plan.end;
        if self.queue.is_empty() || !matches!(self.end, End::Finish) {
            return Ok(());
        }
        // A plan that ends by itself is a whole template: report now what would go wrong later.
        let parts = self.queue.make_contiguous();
        decide::validate(parts).map_err(|error| Failure::internal(error.to_string()))?;
        let mut fields = Vec::new();
        collect_fields(parts, &mut fields);
        for field in fields {
            self.matcher(&field)?;
        }
        Ok(())
    }

    fn complete(&mut self, mut values: Vec<Value>) -> Result<(), Failure> {
        self.in_flight.clear();
        self.checked = Checked::default();
        let Some(ways) = self.choice.take() else {
            self.record(values);
            return Ok(());
        };
        let chosen = values.pop().map(|value| value.bytes).unwrap_or_default();
        self.record(values);
        let way = ways.into_iter().find(|way| way.literal == chosen);
        let way = way.ok_or_else(|| {
            let text = String::from_utf8_lossy(&chosen);
            Failure::internal(format!("{text:?} is none of the ways to go on"))
        })?;
        self.queue = way.rest;
        Ok(())
    }

    fn record(&mut self, values: Vec<Value>) {
        self.fresh.extend(values.iter().cloned());
        self.values.0.extend(values);
    }

    /// The actions up to the next point where the values must be known.
    fn actions(&mut self) -> Result<Vec<Action>, Failure> {
        let mut actions = Vec::new();
        loop {
            match self.queue.pop_front() {
                Some(Part::Literal(text)) => write(&mut actions, &text),
                Some(Part::Field(field)) => self.start(&mut actions, field)?,
                Some(Part::Then(part)) => {
                    if !self.in_flight.is_empty() {
                        self.queue.push_front(Part::Then(part));
                        return Ok(actions);
                    }
                    for part in part(&self.values).parts.into_iter().rev() {
                        self.queue.push_front(part);
                    }
                }
                Some(part) => {
                    if self.choose(&mut actions, part)? {
                        return Ok(actions);
                    }
                }
                None => return self.finish(actions),
            }
        }
    }

    /// Goes on where there are several ways; true when the model has to choose first.
    fn choose(&mut self, actions: &mut Vec<Action>, part: Part) -> Result<bool, Failure> {
        let mut position = std::mem::take(&mut self.queue);
        position.push_front(part.clone());
        let mut ways =
            decide::ways(&position).map_err(|error| Failure::internal(error.to_string()))?;
        if ways.len() > 1 {
            self.start(actions, Rc::new(decide::field(&part, &ways)))?;
            self.choice = Some(ways);
            return Ok(true);
        }
        if let Some(way) = ways.pop() {
            write(actions, &way.literal);
            self.queue = way.rest;
        }
        Ok(false)
    }

    fn finish(&mut self, mut actions: Vec<Action>) -> Result<Vec<Action>, Failure> {
        match std::mem::take(&mut self.end) {
            End::Finish => {
                self.finished = true;
                actions.push(Action::Finish);
            }
            End::Sample { mask, temperature } => actions.push(Action::Sample { mask, temperature }),
            End::AskAgain if actions.is_empty() => {
                // What was left of the plan turned out to be nothing: the format goes on at once.
                let values = std::mem::take(&mut self.fresh);
                self.ask(Observed::Completed(values))?;
                return self.actions();
            }
            End::AskAgain => {}
        }
        Ok(actions)
    }

    /// The grammar that a field's values are validated under, beside its own check.
    fn validating(&self, field: &Field) -> Option<&Grammar> {
        let Origin::Source(source @ Source::JsonSchema(_)) = &field.origin else {
            return None;
        };
        let compiled = self.grammars.get(source)?;
        compiled.validates.then_some(&compiled.grammar)
    }

    /// Whether the host has to ask about a field's value.
    fn checks(&self, field: &Field) -> bool {
        field.is_checked() || self.validating(field).is_some()
    }

    /// A field that is validated has further attempts, unless its author says how many.
    fn retry(&self, field: &Field) -> RetryPolicy {
        let policy = field.retry.clone();
        match policy.attempts == 1 && self.validating(field).is_some() {
            true => validated::policy(policy.exhausted),
            false => policy,
        }
    }

    fn start(&mut self, actions: &mut Vec<Action>, field: Rc<Field>) -> Result<(), Failure> {
        let matcher = self.matcher(&field)?;
        actions.push(Action::Field(Walk {
            name: field.name.clone(),
            matcher,
            max_tokens: field.max_tokens.unwrap_or(self.max_tokens).max(1),
            temperature: field.temperature,
            check: self.checks(&field),
            retry: self.retry(&field),
        }));
        self.in_flight.push(field);
        Ok(())
    }

    fn matcher(&mut self, field: &Field) -> Result<Matcher, Failure> {
        field.validate()?;
        let grammars = &mut self.grammars;
        field.start(|source| {
            if let Some(compiled) = grammars.get(source) {
                return Ok(compiled.grammar.clone());
            }
            let grammar = Grammar::compile(source)?;
            let compiled = Compiled {
                grammar: grammar.clone(),
                validates: matches!(source, Source::JsonSchema(_))
                    && !grammar.unmasked().is_empty(),
            };
            grammars.insert(source.clone(), compiled);
            Ok(grammar)
        })
    }
}

fn write(actions: &mut Vec<Action>, text: &[u8]) {
    match actions.last_mut() {
        Some(Action::Write(bytes)) => bytes.extend_from_slice(text),
        _ if text.is_empty() => {}
        _ => actions.push(Action::Write(text.to_vec())),
    }
}

fn collect_fields(parts: &[Part], fields: &mut Vec<Rc<Field>>) {
    for part in parts {
        match part {
            Part::Field(field) => fields.push(field.clone()),
            Part::Optional(branch) => collect_fields(&branch.parts, fields),
            Part::Repeat(repeat, _) => collect_fields(&repeat.item, fields),
            Part::Either(either) => either
                .branches
                .iter()
                .for_each(|branch| collect_fields(branch, fields)),
            Part::Literal(_) | Part::Then(_) => {}
        }
    }
}
