//! The demo's requests, and what their answers must look like.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::registry::PluginName;

/// Messages to a bank.
pub(super) const MESSAGES: &[&str] = &[
    "Hello, my card was swallowed by the machine in Elm Street this morning. Account 4711-082351. \
     Please block it as soon as you can.",
    "Hi, since yesterday I see two payments of 89.90 to the same shop on my account 2093-551207, \
     but I bought only once. Could you look into it and send one back?",
    "Good day, I moved house last week and would like my statements sent to the new address. My \
     account number is 8850-114236.",
    "I cannot log in to the app any more, it says my device is unknown. This is urgent, I have to \
     pay my rent today! Account 1204-670098.",
];

/// Tokens that a free answer may take.
const FREE_MAX_TOKENS: u32 = 96;

fn chat(model: &str, content: &str, max_tokens: u32) -> Value {
    json!({
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// A chat request without a format.
pub(super) fn free(model: &str, content: &str, max_tokens: u32) -> Value {
    chat(model, content, max_tokens)
}

fn through(model: &str, content: &str, plugin: &str, params: Value) -> Value {
    let mut body = chat(model, content, 160);
    body["plugin"] = json!({"name": plugin, "params": params});
    body
}

/// A support message that becomes a ticket.
pub(super) fn ticket(model: &str, plugin: &PluginName, message: &str) -> Value {
    let content = format!("Turn this message to a bank into a support ticket.\n\n{message}");
    through(model, &content, plugin.as_str(), json!({}))
}

/// Whether `text` is a ticket as the plugin promises.
pub(super) fn check_ticket(text: &str) -> Result<()> {
    check(
        text,
        &json!({
            "type": "object",
            "properties": {
                "category": {"enum": ["card", "payment", "account", "login", "other"]},
                "priority": {"enum": ["low", "normal", "high", "urgent"]},
                "account": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{6}$"},
                "summary": {"type": "string", "minLength": 10, "maxLength": 160},
            },
            "required": ["category", "priority", "account", "summary"],
            "additionalProperties": false,
        }),
    )
    .context("the ticket")
}

fn city_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2, "maxLength": 40},
            "country": {"type": "string", "minLength": 2, "maxLength": 40},
            "population": {"type": "integer", "minimum": 1, "maximum": 50_000_000},
            "landlocked": {"type": "boolean"},
        },
        "required": ["city", "country", "population", "landlocked"],
        "additionalProperties": false,
    })
}

/// A request with OpenAI's own `response_format`.
pub(super) fn schema(model: &str) -> Value {
    let mut body = chat(model, "Tell me about Paris as JSON.", 120);
    body["response_format"] = json!({
        "type": "json_schema",
        "json_schema": {"name": "city", "schema": city_schema(), "strict": true},
    });
    body
}

/// Whether `text` follows [`schema`]'s schema.
pub(super) fn check_schema(text: &str) -> Result<()> {
    check(text, &city_schema()).context("the json_schema answer")
}

fn check(text: &str, schema: &Value) -> Result<()> {
    let value: Value = serde_json::from_str(text).with_context(|| format!("no JSON: {text:?}"))?;
    let validator = jsonschema::validator_for(schema).context("the demo's own schema")?;
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|e| e.to_string())
        .collect();
    ensure!(errors.is_empty(), "{text:?}: {}", errors.join("; "));
    Ok(())
}

/// One of the concurrent requests, and the check of its answer.
pub(super) struct Probe {
    /// What it shows.
    pub(super) kind: &'static str,
    /// The request.
    pub(super) body: Value,
    /// Judges the answer's text.
    pub(super) check: fn(&str) -> Result<()>,
}

/// A free request whose answer is long, so that it measures decoding.
pub(super) fn story(index: usize, model: &str) -> Probe {
    let place = [
        "a lighthouse",
        "a market",
        "a railway station",
        "an old library",
    ][index % 4];
    let content = format!("Write a long story, number {index}, that happens in {place}.");
    Probe {
        kind: "free",
        body: free(model, &content, FREE_MAX_TOKENS),
        check: check_free,
    }
}

/// A ticket, as one of many requests.
pub(super) fn ticket_probe(index: usize, model: &str, plugin: &PluginName) -> Probe {
    Probe {
        kind: "ticket",
        body: ticket(model, plugin, MESSAGES[index % MESSAGES.len()]),
        check: check_ticket,
    }
}

fn check_free(text: &str) -> Result<()> {
    ensure!(!text.trim().is_empty(), "a free answer is empty");
    Ok(())
}

/// Request number `index` of mixed ones: every second one is free.
pub(super) fn mixed(index: usize, model: &str, ticket_plugin: &PluginName) -> Probe {
    let message = MESSAGES[index / 2 % MESSAGES.len()];
    let probe = |kind, body, check| Probe { kind, body, check };
    if index % 2 == 1 {
        let content = format!("Answer this customer of our bank politely.\n\n{message}");
        return probe("free", free(model, &content, FREE_MAX_TOKENS), check_free);
    }
    match index / 2 % 4 {
        0 => ticket_probe(index / 2, model, ticket_plugin),
        1 => probe("json_schema", schema(model), check_schema),
        2 => {
            let content = format!("Is this message friendly or angry?\n\n{message}");
            let params = json!({"choices": ["friendly", "angry"]});
            let body = through(model, &content, "formwork/choice", params);
            probe("choice", body, |text| {
                ensure!(
                    ["friendly", "angry"].contains(&text),
                    "{text:?} is no choice"
                );
                Ok(())
            })
        }
        _ => {
            let content = format!("Which account is this about?\n\n{message}");
            let params = json!({"pattern": "[0-9]{4}-[0-9]{6}"});
            let body = through(model, &content, "formwork/regex", params);
            probe("regex", body, check_account)
        }
    }
}

fn check_account(text: &str) -> Result<()> {
    let digits =
        |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split_once('-');
    let fits = parts.is_some_and(|(branch, number)| digits(branch, 4) && digits(number, 6));
    ensure!(fits, "{text:?} is not [0-9]{{4}}-[0-9]{{6}}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_can_fail() {
        let good = r#"{"category":"card","priority":"high","account":"4711-082351","summary":"A card is lost."}"#;
        check_ticket(good).unwrap();
        for (from, to) in [
            ("card", "cards"),
            ("4711-", "4711"),
            ("A card is lost.", "Card"),
            ("}", ",\"more\":1}"),
            ("}", ""),
        ] {
            assert!(
                check_ticket(&good.replace(from, to)).is_err(),
                "{from} -> {to}"
            );
        }
        check_account("4711-082351").unwrap();
        for bad in [
            "",
            "4711-08235",
            "4711082351",
            "4711-0823511",
            "4711-08235x",
        ] {
            assert!(check_account(bad).is_err(), "{bad}");
        }
        assert!(check_schema("{}").is_err());
    }
}
