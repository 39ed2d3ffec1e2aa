//! Chat templates: the Jinja dialect of Hugging Face's `apply_chat_template`.

use crate::ModelError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;
use serde_json::Value;

const NAME: &str = "chat";

/// A compiled chat template with the special tokens that it may print.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

/// What a chat template is rendered from.
pub struct ChatInputs<'a> {
    /// An array of messages, as in the chat completions API.
    pub messages: &'a Value,
    /// An array of tools, as in the chat completions API.
    pub tools: Option<&'a Value>,
    /// Whether to open the assistant's turn at the end.
    pub add_generation_prompt: bool,
    /// Today, as `YYYY-MM-DD`, for templates that print the date. The template never sees a clock.
    pub date: &'a str,
    /// More variables of the template, such as `enable_thinking`.
    pub extra: serde_json::Map<String, Value>,
}

impl ChatTemplate {
    /// Compiles `source`. The tokens are texts, empty where the model has none.
    ///
    /// # Errors
    /// When the template does not parse.
    pub fn new(source: &str, bos_token: &str, eos_token: &str) -> Result<Self, ModelError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| ModelError::ChatTemplate(describe(&error)))?;
        environment.set_syntax(syntax);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| -> Result<(), Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| ModelError::ChatTemplate(describe(&error)))?;
        Ok(Self {
            environment,
            bos_token: bos_token.to_owned(),
            eos_token: eos_token.to_owned(),
        })
    }

    /// The prompt's text. Special tokens appear in it by name.
    ///
    /// # Errors
    /// When the template raises an exception or cannot handle its input.
    pub fn render(&self, inputs: &ChatInputs<'_>) -> Result<String, ModelError> {
        let date = Date::parse(inputs.date)?;
        let mut environment = self.environment.clone();
        environment.add_function("strftime_now", move |format: &str| date.format(format));
        let mut context = inputs.extra.clone();
        context.insert("messages".into(), inputs.messages.clone());
        if let Some(tools) = inputs.tools {
            context.insert("tools".into(), tools.clone());
        }
        context.insert(
            "add_generation_prompt".into(),
            inputs.add_generation_prompt.into(),
        );
        context.insert("bos_token".into(), self.bos_token.clone().into());
        context.insert("eos_token".into(), self.eos_token.clone().into());
        environment
            .get_template(NAME)
            .and_then(|template| template.render(Serde(context)))
            .map_err(|error| ModelError::ChatTemplate(describe(&error)))
    }
}

/// The message of an error and the line it stems from.
fn describe(error: &Error) -> String {
    let what = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

/// `tojson` as Python's `json.dumps` writes it: `, ` and `: ` between items, no escapes beyond JSON's.
fn to_json(value: Serde<Value>, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Accepted for the templates that pass it; text is never escaped to ASCII here.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = vec![b' '; indent.min(16)];
            let formatter = serde_json::ser::PrettyFormatter::with_indent(&indent);
            value
                .0
                .serialize(&mut serde_json::Serializer::with_formatter(
                    &mut bytes, formatter,
                ))
        }
        None => value
            .0
            .serialize(&mut serde_json::Serializer::with_formatter(
                &mut bytes,
                SpacedFormatter,
            )),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    String::from_utf8(bytes)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// One line, with a space after each comma and colon.
struct SpacedFormatter;

impl serde_json::ser::Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// A day of the calendar.
#[derive(Clone, Copy)]
struct Date {
    year: u32,
    month: usize,
    day: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl Date {
    fn parse(text: &str) -> Result<Self, ModelError> {
        let parts: Vec<_> = text.split('-').collect();
        if let [year, month, day] = parts[..]
            && let (Ok(year), Ok(month), Ok(day)) = (year.parse(), month.parse(), day.parse())
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
        {
            return Ok(Self { year, month, day });
        }
        Err(ModelError::ChatTemplate(format!(
            "the date {text:?} is not YYYY-MM-DD"
        )))
    }

    /// The directives of `strftime` that concern the date.
    fn format(self, format: &str) -> Result<String, Error> {
        let month = MONTHS[self.month - 1];
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('Y') => out += &self.year.to_string(),
                Some('y') => out += &format!("{:02}", self.year % 100),
                Some('m') => out += &format!("{:02}", self.month),
                Some('d') => out += &format!("{:02}", self.day),
                Some('e') => out += &format!("{:2}", self.day),
                Some('B') => out += month,
                Some('b') => out += &month[..3],
                Some('F') => out += &format!("{}-{:02}-{:02}", self.year, self.month, self.day),
                Some('H' | 'M' | 'S') => out += "00",
                Some('%') => out.push('%'),
                other => {
                    let directive = other.map_or_else(|| "%".into(), |c| format!("%{c}"));
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!("strftime_now does not know {directive}"),
                    ));
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, messages: &Value) -> Result<String, ModelError> {
        ChatTemplate::new(source, "<s>", "</s>")?.render(&ChatInputs {
            messages,
            tools: Some(&json!([{"name": "f<x>", "n": [1, 2.5]}])),
            add_generation_prompt: true,
            date: "2026-03-09",
            extra: serde_json::Map::new(),
        })
    }

    #[test]
    fn templates_see_what_hugging_face_gives_them() {
        let messages = json!([{"role": "user", "content": " hi "}]);
        for (source, want) in [
            (
                "{{ bos_token }}{{ messages[0].content.strip() }}{{ eos_token }}",
                "<s>hi</s>",
            ),
            ("{{ messages[0]['role'].upper() }}", "USER"),
            ("{% if add_generation_prompt %}\nA\n{% endif %}", "A\n"),
            (
                "{{ tools[0] | tojson }}",
                r#"{"name": "f<x>", "n": [1, 2.5]}"#,
            ),
            ("{{ [] | tojson(indent=2) }}", "[]"),
            ("{{ strftime_now('%d %b %Y') }}", "09 Mar 2026"),
            (
                "{{ strftime_now('%Y-%m-%d %B %y') }}",
                "2026-03-09 March 26",
            ),
            ("{{ missing is defined }}", "False"),
        ] {
            assert_eq!(render(source, &messages).unwrap(), want, "{source}");
        }
    }

    #[test]
    fn failures_say_why() {
        let messages = json!([]);
        for (source, want) in [
            (
                "{{ raise_exception('roles must alternate') }}",
                "roles must alternate",
            ),
            ("\n{% if %}", "line 2"),
            ("{{ strftime_now('%Q') }}", "%Q"),
        ] {
            let error = render(source, &messages).unwrap_err().to_string();
            assert!(error.contains(want), "{source}: {error}");
        }
    }
}
