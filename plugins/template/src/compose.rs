//! From the params to a template, with the path of whatever is wrong.

use crate::check::{Checks, Seen};
use crate::spec::{CheckSpec, Exhausted, PartSpec, RetrySpec};
use formwork_plugin_sdk::prelude::*;
use std::collections::BTreeSet;

const KINDS: [&str; 5] = ["literal", "field", "optional", "repeat", "either"];
const FIELD_KEYS: [&str; 9] = [
    "choice",
    "regex",
    "json_schema",
    "lark",
    "json",
    "max_tokens",
    "temperature",
    "check",
    "retry",
];
/// Attempts and heat of a checked field that says nothing about them.
const ATTEMPTS: u32 = 3;
const HEAT: f32 = 0.2;
/// A request that retries for ever is a mistake.
const MAX_ATTEMPTS: u32 = 32;

/// Composes the template of some parts.
pub(crate) struct Composer {
    seen: Seen,
    /// Fields whose values another field's check looks at: they are checked too, to be seen in time.
    watched: BTreeSet<String>,
    /// Fields so far, in the order of the output.
    known: BTreeSet<String>,
}

impl Composer {
    pub(crate) fn compose(parts: Vec<PartSpec>) -> Result<Template, Failure> {
        let mut watched = BTreeSet::new();
        watch(&parts, &mut watched);
        let mut composer = Self {
            seen: Seen::default(),
            watched,
            known: BTreeSet::new(),
        };
        let template = composer.parts(parts, "params.parts")?;
        template
            .validate()
            .map_err(|error| Failure::invalid_params(format!("params.parts: {error}")))?;
        Ok(template)
    }

    fn parts(&mut self, parts: Vec<PartSpec>, path: &str) -> Result<Template, Failure> {
        if parts.is_empty() {
            return refuse(path, "a list of parts must not be empty");
        }
        let mut template = Template::new();
        for (index, part) in parts.into_iter().enumerate() {
            template = self.part(template, part, &format!("{path}[{index}]"))?;
        }
        Ok(template)
    }

    fn part(
        &mut self,
        so_far: Template,
        mut part: PartSpec,
        path: &str,
    ) -> Result<Template, Failure> {
        match kind(&part, path)? {
            "literal" => Ok(so_far.literal(part.literal.unwrap_or_default())),
            "field" => Ok(so_far.field(self.field(part, path)?)),
            "optional" => {
                let name = name(part.optional.take(), path, "optional")?;
                let parts = part.parts.unwrap_or_default();
                Ok(so_far.optional(name, self.parts(parts, &format!("{path}.parts"))?))
            }
            "repeat" => {
                let name = name(part.repeat.take(), path, "repeat")?;
                let (min, max) = (part.min.unwrap_or(0), part.max.unwrap_or(u32::MAX));
                if min > max {
                    return refuse(path, &format!("`min` is {min}, `max` is {max}"));
                }
                let separator = part.separator.unwrap_or_default();
                let parts = part.parts.unwrap_or_default();
                let item = self.parts(parts, &format!("{path}.parts"))?;
                Ok(so_far.repeat(name, min..=max, separator, item))
            }
            _ => {
                let name = name(part.either.take(), path, "either")?;
                let branches = part.branches.unwrap_or_default();
                let branches: Result<Vec<_>, _> = branches
                    .into_iter()
                    .enumerate()
                    .map(|(index, parts)| self.parts(parts, &format!("{path}.branches[{index}]")))
                    .collect();
                Ok(so_far.either(name, branches?))
            }
        }
    }

    fn field(&mut self, mut part: PartSpec, path: &str) -> Result<Field, Failure> {
        let name = name(part.field.take(), path, "field")?;
        let (check, retry) = (part.check.take(), part.retry.take());
        let (max_tokens, temperature) = (part.max_tokens, part.temperature);
        let validates = part.json_schema.is_some();
        let mut field = Field::of(&name, source(part, path)?);
        match max_tokens {
            Some(0) => return refuse(&format!("{path}.max_tokens"), "0 leaves room for nothing"),
            Some(tokens) => field = field.max_tokens(tokens),
            None => {}
        }
        if let Some(temperature) = temperature {
            check_range(temperature, &format!("{path}.temperature"))?;
            field = field.temperature(temperature);
        }
        if retry.is_some() && check.is_none() && !validates {
            return refuse(
                &format!("{path}.retry"),
                "without a `check` nothing is retried",
            );
        }
        if let Some(check) = &check {
            self.check_names(check, &format!("{path}.check"))?;
        }
        if check.is_some() || self.watched.contains(&name) {
            let seen = self.seen.clone();
            let mut checks =
                Checks::new(check.unwrap_or_default(), seen, &format!("{path}.check"))?;
            let retry = retry.unwrap_or_default();
            checks.give_up(retry.attempts.unwrap_or(ATTEMPTS), retry.exhausted.as_ref());
            field = with_retry(field, retry, &format!("{path}.retry"))?;
            field = field.check(move |value| checks.judge(value));
        } else if let Some(retry) = retry {
            field = with_retry(field, retry, &format!("{path}.retry"))?;
        }
        self.known.insert(name);
        Ok(field)
    }

    /// A check may only look at fields that come before it.
    fn check_names(&self, check: &CheckSpec, path: &str) -> Result<(), Failure> {
        let sums = check.equals_sum_of.iter().flatten();
        let sums = sums.map(|name| ("equals_sum_of", name));
        let differs = check.differs_from.iter().map(|name| ("differs_from", name));
        for (key, name) in sums.chain(differs) {
            if !self.known.contains(name) {
                return refuse(
                    &format!("{path}.{key}"),
                    &format!("no field `{name}` comes before"),
                );
            }
        }
        Ok(())
    }
}

fn refuse<T>(path: &str, what: &str) -> Result<T, Failure> {
    Err(Failure::invalid_params(format!("{path}: {what}")))
}

fn watch(parts: &[PartSpec], names: &mut BTreeSet<String>) {
    for part in parts {
        if let Some(check) = &part.check {
            names.extend(check.equals_sum_of.iter().flatten().cloned());
            names.extend(check.differs_from.iter().cloned());
        }
        watch(part.parts.as_deref().unwrap_or_default(), names);
        for branch in part.branches.iter().flatten() {
            watch(branch, names);
        }
    }
}

/// Which kind of part it is, having checked that its keys belong to that kind and none is missing.
fn kind(part: &PartSpec, path: &str) -> Result<&'static str, Failure> {
    let keys = part.keys();
    let kinds: Vec<_> = keys
        .iter()
        .copied()
        .filter(|key| KINDS.contains(key))
        .collect();
    let [kind] = kinds[..] else {
        let what = format!(
            "a part has exactly one of the keys {}, this one has {}",
            KINDS.join(", "),
            kinds.len()
        );
        return refuse(path, &what);
    };
    let allowed: &[&str] = match kind {
        "literal" => &[],
        "field" => &FIELD_KEYS,
        "optional" => &["parts"],
        "repeat" => &["parts", "min", "max", "separator"],
        _ => &["branches"],
    };
    for key in keys {
        if key != kind && !allowed.contains(&key) {
            return refuse(
                &format!("{path}.{key}"),
                &format!("not a key of a part of kind `{kind}`"),
            );
        }
    }
    Ok(kind)
}

/// A name is not empty and does not look like one of the template's own choices.
fn name(name: Option<String>, path: &str, key: &str) -> Result<String, Failure> {
    let name = name.unwrap_or_default();
    if name.is_empty() || name.starts_with('?') {
        return refuse(
            &format!("{path}.{key}"),
            "a name is not empty and does not begin with `?`",
        );
    }
    Ok(name)
}

fn source(part: PartSpec, path: &str) -> Result<Source, Failure> {
    let json = part.json.unwrap_or(false);
    let grammars = (part.choice, part.regex, part.json_schema, part.lark);
    match grammars {
        (Some(choices), None, None, None) => choice(choices, json, &format!("{path}.choice")),
        (None, Some(pattern), None, None) if json => {
            let schema = json!({"type": "string", "pattern": format!("^(?:{pattern})$")});
            Ok(Source::json_schema(schema.to_string()))
        }
        (None, Some(pattern), None, None) => Ok(Source::Regex(pattern)),
        (None, None, Some(_), None) | (None, None, None, Some(_)) if json => refuse(
            &format!("{path}.json"),
            "only `choice` and `regex` can be written as a JSON string",
        ),
        (None, None, Some(schema), None) => Ok(Source::json_schema(schema.get())),
        (None, None, None, Some(grammar)) => Ok(Source::Lark(grammar)),
        _ => refuse(
            path,
            "a field has exactly one of the keys choice, regex, json_schema, lark",
        ),
    }
}

fn choice(choices: Vec<String>, json: bool, path: &str) -> Result<Source, Failure> {
    if choices.is_empty() {
        return refuse(path, "there is nothing to choose from");
    }
    if json {
        let quoted = choices.into_iter().map(|text| Json::from(text).to_string());
        return Ok(Source::Choice(quoted.collect()));
    }
    match choices.iter().position(String::is_empty) {
        Some(index) => refuse(
            &format!("{path}[{index}]"),
            "an empty text cannot be chosen",
        ),
        None => Ok(Source::Choice(choices)),
    }
}

fn with_retry(field: Field, retry: RetrySpec, path: &str) -> Result<Field, Failure> {
    let attempts = retry.attempts.unwrap_or(ATTEMPTS);
    if !(1..=MAX_ATTEMPTS).contains(&attempts) {
        let what = format!("{attempts} is not within 1 and {MAX_ATTEMPTS}");
        return refuse(&format!("{path}.attempts"), &what);
    }
    let heat = retry.heat.unwrap_or(HEAT);
    check_range(heat, &format!("{path}.heat"))?;
    let mut field = field.retry(attempts).heat(heat);
    if let Some(hint) = retry.hint {
        field = field.hint(hint);
    }
    Ok(match retry.exhausted {
        Some(Exhausted::Write(text)) => field.or_write(text),
        Some(Exhausted::Accept) => field.or_accept(),
        Some(Exhausted::Fail) | None => field,
    })
}

fn check_range(number: f32, path: &str) -> Result<(), Failure> {
    match (0.0..=10.0).contains(&number) {
        true => Ok(()),
        false => refuse(path, &format!("{number} is not within 0 and 10")),
    }
}
