//! Reads one JSON object field by field, so that each error says which field is wrong and why.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::errors::ApiError;

/// Bytes of a wrong value that an error repeats.
const SHOWN_BYTES: usize = 48;

/// A JSON object that is being taken apart. `null` counts as absent.
pub struct Fields {
    path: String,
    map: Map<String, Value>,
    /// Names asked for so far: what an unknown name may have meant.
    known: Vec<&'static str>,
}

impl Fields {
    /// The object `value` at `path`; the body itself has an empty path.
    ///
    /// # Errors
    /// 400 when it is not an object.
    pub fn new(path: impl Into<String>, value: Value) -> Result<Self, ApiError> {
        let path = path.into();
        let known = Vec::new();
        match value {
            Value::Object(map) => Ok(Self { path, map, known }),
            other if path.is_empty() => {
                let message = format!("the body must be a JSON object, not {}", shown(&other));
                Err(ApiError::invalid("body", message))
            }
            other => Err(wrong(&path, "an object", &other)),
        }
    }

    /// Where the field `name` lies, as in `messages[0].content`.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() {
            return name.to_owned();
        }
        format!("{}.{name}", self.path)
    }

    /// Takes a field of any type.
    pub fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field that must be there.
    ///
    /// # Errors
    /// 400 when it is absent.
    pub fn required(&mut self, name: &'static str) -> Result<Value, ApiError> {
        let path = self.path(name);
        self.take(name).ok_or_else(|| {
            ApiError::invalid(&path, format!("`{path}` is missing")).code("missing_field")
        })
    }

    /// Takes a string.
    ///
    /// # Errors
    /// 400 when it is something else.
    pub fn string(&mut self, name: &'static str) -> Result<Option<String>, ApiError> {
        let path = self.path(name);
        self.take(name)
            .map(|value| as_string(&path, value))
            .transpose()
    }

    /// Takes a string that must be there.
    ///
    /// # Errors
    /// 400 when it is absent or something else.
    pub fn required_string(&mut self, name: &'static str) -> Result<String, ApiError> {
        let path = self.path(name);
        as_string(&path, self.required(name)?)
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// 400 when it is something else.
    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        let path = self.path(name);
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(&path, "true or false", &other)),
        }
    }

    /// Takes a number within `range`.
    ///
    /// # Errors
    /// 400 when it is something else or out of range.
    pub fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f32>, ApiError> {
        let path = self.path(name);
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        as_number(&path, &value, range).map(Some)
    }

    /// Takes an integer within `range`.
    ///
    /// # Errors
    /// 400 when it is something else or out of range.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let path = self.path(name);
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        as_integer(&path, &value, range).map(Some)
    }

    /// Takes a count of at most `most`.
    ///
    /// # Errors
    /// 400 when it is something else or out of range.
    pub fn count(
        &mut self,
        name: &'static str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, ApiError> {
        let bound = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let value = self.integer(name, bound(least)..=bound(most))?;
        Ok(value.and_then(|value| usize::try_from(value).ok()))
    }

    /// Refuses a field of the API that this server does not have, unless its value changes nothing.
    ///
    /// # Errors
    /// 400 when it is there and `harmless` does not say otherwise.
    pub fn refuse(
        &mut self,
        name: &'static str,
        harmless: impl FnOnce(&Value) -> bool,
    ) -> Result<(), ApiError> {
        let path = self.path(name);
        match self.take(name) {
            Some(value) if !harmless(&value) => {
                let message = format!(
                    "`{path}` is not supported by this server; leave it out (it was {})",
                    shown(&value)
                );
                Err(ApiError::invalid(path, message).code("unsupported_parameter"))
            }
            _ => Ok(()),
        }
    }

    /// Ends the reading: whatever is left is unknown.
    ///
    /// # Errors
    /// 400 naming the first field that is left.
    pub fn finish(self) -> Result<(), ApiError> {
        let Some(name) = self.map.keys().next() else {
            return Ok(());
        };
        let shown: String = name.chars().take(SHOWN_BYTES).collect();
        let path = self.path(&shown);
        let near = self
            .known
            .iter()
            .filter(|known| strsim::damerau_levenshtein(known, &shown) <= 2);
        let hint = near.min_by_key(|known| strsim::damerau_levenshtein(known, &shown));
        let hint = hint.map_or(String::new(), |known| format!("; did you mean `{known}`?"));
        let message = format!("unknown field `{path}`{hint}");
        Err(ApiError::invalid(path, message).code("unknown_field"))
    }
}

/// The error for a value of the wrong type.
pub(super) fn wrong(path: &str, expected: &str, found: &Value) -> ApiError {
    let message = format!("`{path}` must be {expected}, not {}", shown(found));
    ApiError::invalid(path, message).code("invalid_type")
}

pub(super) fn as_string(path: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(path, "a string", &other)),
    }
}

pub(super) fn as_number(
    path: &str,
    value: &Value,
    range: RangeInclusive<f64>,
) -> Result<f32, ApiError> {
    let expected = format!("a number from {} to {}", range.start(), range.end());
    match value.as_f64() {
        Some(number) if range.contains(&number) => Ok(number as f32),
        Some(_) => Err(wrong(path, &expected, value).code("out_of_range")),
        None => Err(wrong(path, &expected, value)),
    }
}

pub(super) fn as_integer(
    path: &str,
    value: &Value,
    range: RangeInclusive<i64>,
) -> Result<i64, ApiError> {
    let expected = match range.end() {
        &i64::MAX if *range.start() == i64::MIN => "an integer of 64 bits".to_owned(),
        &i64::MAX => format!("an integer of at least {}", range.start()),
        end => format!("an integer from {} to {end}", range.start()),
    };
    match value.as_i64() {
        Some(number) if range.contains(&number) => Ok(number),
        None if !value.is_number() => Err(wrong(path, &expected, value)),
        _ => Err(wrong(path, &expected, value).code("out_of_range")),
    }
}

/// Takes an array apart; `path[i]` names its items.
pub(super) fn as_list(path: &str, value: Value) -> Result<Vec<(String, Value)>, ApiError> {
    match value {
        Value::Array(items) => {
            let items = items.into_iter().enumerate();
            Ok(items
                .map(|(index, item)| (format!("{path}[{index}]"), item))
                .collect())
        }
        other => Err(wrong(path, "an array", &other)),
    }
}

/// A value for an error message: its start, if it is long.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        other => {
            let text = other.to_string();
            if text.len() <= SHOWN_BYTES {
                return text;
            }
            format!("{}…", &text[..text.floor_char_boundary(SHOWN_BYTES)])
        }
    }
}
