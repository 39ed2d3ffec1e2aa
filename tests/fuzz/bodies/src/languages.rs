//! Languages that are known by other means than a grammar.

use formwork_sandbox::Source;
use serde_json::Value;

/// A source, and whether a text is in its language as told by other means.
#[derive(Debug)]
pub(crate) struct Language {
    kind: Kind,
    text: &'static str,
    holds: fn(&str) -> bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Schema,
    Regex,
    Lark,
    /// One option per line.
    Choice,
}

impl Language {
    pub(crate) fn source(&self) -> Source {
        let text = self.text.to_owned();
        match self.kind {
            Kind::Schema => Source::JsonSchema(text.into()),
            Kind::Regex => Source::Regex(text),
            Kind::Lark => Source::Lark(text),
            Kind::Choice => Source::Choice(text.lines().map(str::to_owned).collect()),
        }
    }

    /// The schema's and the regex's own meaning is added to what the language says of itself.
    pub(crate) fn holds(&self, text: &str) -> bool {
        let meant = match self.kind {
            Kind::Schema => match serde_json::from_str(text) {
                Ok(value) => json(self.text).is_some_and(|schema| {
                    jsonschema::validator_for(&schema)
                        .is_ok_and(|validator| validator.is_valid(&value))
                }),
                Err(error) => is_out_of_range(&error),
            },
            Kind::Regex => regex::Regex::new(&format!(r"\A(?:{})\z", self.text))
                .is_ok_and(|regex| regex.is_match(text)),
            Kind::Choice => self.text.lines().any(|option| option == text),
            Kind::Lark => true,
        };
        meant && (self.holds)(text)
    }
}

/// Whether a text is JSON but for a number that JSON has and this reader does not.
pub(crate) fn is_out_of_range(error: &serde_json::Error) -> bool {
    error.to_string().contains("number out of range")
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Compact: no white space but in strings.
fn compact(text: &str) -> bool {
    let mut quoted = false;
    let mut escaped = false;
    text.chars().all(|c| {
        let space = !quoted && c.is_whitespace();
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        !space
    })
}

fn keys(value: &Value) -> Vec<&str> {
    let keys = value.as_object().map(|map| map.keys().map(String::as_str));
    keys.map(Iterator::collect).unwrap_or_default()
}

fn any(_: &str) -> bool {
    true
}

/// `sum` of the grammar of sums below: the rest of the text, where there is one.
fn sum(text: &str) -> Option<&str> {
    let mut rest = product(text)?;
    while let Some(more) = rest.strip_prefix('+') {
        rest = product(more)?;
    }
    Some(rest)
}

fn product(text: &str) -> Option<&str> {
    let mut rest = atom(text)?;
    while let Some(more) = rest.strip_prefix('*') {
        rest = atom(more)?;
    }
    Some(rest)
}

fn atom(text: &str) -> Option<&str> {
    if let Some(inner) = text.strip_prefix('(') {
        return sum(inner)?.strip_prefix(')');
    }
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// The languages that walks are tried on.
pub(crate) const LANGUAGES: &[Language] = &[
    Language {
        kind: Kind::Schema,
        text: r#"{"type":"object","properties":{"name":{"type":"string","maxLength":6},
            "kind":{"enum":["é\t","日本語","🦀👍🏽",null,1.5]},"amount":{"type":"integer","minimum":-5,
            "exclusiveMaximum":13},"tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},
            "required":["name","kind","amount"],"additionalProperties":false}"#,
        holds: |text| {
            let value = json(text).unwrap_or_default();
            let known = ["name", "kind", "amount", "tags"];
            compact(text) && known.starts_with(&keys(&value))
        },
    },
    Language {
        kind: Kind::Schema,
        text: r##"{"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{
            "v":{"type":"number","minimum":0,"maximum":2.5},"l":{"$ref":"#/$defs/tree"},
            "r":{"$ref":"#/$defs/tree"}},"required":["v"],"additionalProperties":false}}}"##,
        holds: compact,
    },
    Language {
        kind: Kind::Schema,
        text: r#"{"anyOf":[{"type":"array","prefixItems":[{"const":"https://a.b/c?d=e"},
            {"type":"string","pattern":"^[äöü]{1,3}$"}],"items":{"type":"null"},"minItems":2,"maxItems":4},
            {"type":"string","minLength":2,"maxLength":3}]}"#,
        holds: compact,
    },
    Language {
        kind: Kind::Schema,
        text: "{}",
        holds: compact,
    },
    Language {
        kind: Kind::Regex,
        text: r"(\p{L}+|[äöüß]{2,4}|日本?|[0-9]{3})(, ?[a-c]*\d)?",
        holds: any,
    },
    Language {
        kind: Kind::Regex,
        text: r"(ab|abc|bca)*(é|\x{1F980}){0,2};",
        holds: any,
    },
    Language {
        kind: Kind::Choice,
        text: "a\nab\nabc\n日本\n日\n\"\\\"\u{7f}\nnull",
        holds: any,
    },
    Language {
        kind: Kind::Lark,
        text: "start: \"(\" start \")\" | \"x\"",
        holds: |text| {
            let half = text.len() / 2;
            text == format!("{}x{}", "(".repeat(half), ")".repeat(half))
        },
    },
    Language {
        kind: Kind::Lark,
        text: "start: sum\nsum: product (\"+\" product)*\nproduct: atom (\"*\" atom)*\n\
               atom: /[0-9]+/ | \"(\" sum \")\"",
        holds: |text| sum(text) == Some(""),
    },
    Language {
        kind: Kind::Lark,
        text: "start: pair{2,4}\npair: KEY \"=\" VALUE \";\"\nKEY: /[a-z]+/ & ~/ab.*/\nVALUE: /\"[^\"\\n]*\"/",
        holds: |text| {
            let pairs: Vec<_> = text.split_inclusive(';').collect();
            // A value may hold semicolons.
            pairs.len() >= 2 && text.ends_with("\";") && !text.starts_with("ab")
        },
    },
];
