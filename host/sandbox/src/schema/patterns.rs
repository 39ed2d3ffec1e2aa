//! Patterns in JavaScript's dialect, for a grammar engine that speaks Rust's.

use llguidance::{GrammarBuilder, JsonCompileOptions, api::ParserLimits};
use serde_json::{Map, Value, json};

/// What `.` matches in JavaScript.
const ANY: &str = r"[^\n\r\x{2028}\x{2029}]";

/// White space in JavaScript, as the inside of a class.
const SPACE: &str = r"\t\n\x0b\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff";

/// The pattern in Rust's dialect; `None` when it has no counterpart there (look-around, references to
/// groups).
pub(super) fn translate(pattern: &str) -> Option<String> {
    let mut rust = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    let mut class = false;
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next()? {
                'c' => {
                    let letter = rest.next().filter(char::is_ascii_alphabetic)?;
                    rust.push_str(&format!("\\x{:02x}", letter as u8 & 0x1f));
                }
                // Anchors and classes in Rust, plain or unknown in JavaScript.
                'A' | 'z' | 'Z' | 'a' | 'h' | 'H' | 'R' | 'G' | 'K' | 'Q' | 'E' | 'x'
                    if !starts_hex(rest.clone()) =>
                {
                    return None;
                }
                's' => rust.push_str(&format!("[{SPACE}]")),
                'S' => rust.push_str(&format!("[^{SPACE}]")),
                plain
                @ ('<' | '>' | '/' | '"' | '\'' | '@' | ',' | ';' | '!' | '%' | ':' | '=') => {
                    rust.push(plain);
                }
                other => rust.extend(['\\', other]),
            },
            '[' if !class => {
                class = true;
                rust.push('[');
                if rest.peek() == Some(&'^') {
                    rest.next();
                    rust.push('^');
                }
                if rest.peek() == Some(&']') {
                    rest.next();
                    class = false;
                    let negated = rust.ends_with('^');
                    rust.truncate(rust.len() - 1 - usize::from(negated));
                    rust.push_str(if negated { r"[\s\S]" } else { r"[^\s\S]" });
                }
            }
            ']' => {
                class = false;
                rust.push(']');
            }
            '[' | '&' | '~' if class => rust.extend(['\\', character]),
            '.' if !class => rust.push_str(ANY),
            other => rust.push(other),
        }
    }
    let ascii = llguidance::regex_to_lark(&rust, "dw");
    let parsed = regex_syntax::ParserBuilder::new()
        .nest_limit(200)
        .build()
        .parse(&ascii);
    (parsed.is_ok() && !rust.contains("<stop>")).then_some(rust)
}

fn starts_hex(mut rest: impl Iterator<Item = char>) -> bool {
    rest.next().is_some_and(|digit| digit.is_ascii_hexdigit())
}

/// Whether the grammar engine takes the pattern, by itself and at little cost.
pub(super) fn is_easy(rust: &str) -> bool {
    let limits = ParserLimits {
        initial_lexer_fuel: 100_000,
        ..ParserLimits::default()
    };
    let schema = json!({"type": "string", "pattern": rust});
    let built = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
        JsonCompileOptions::default().json_to_llg(GrammarBuilder::new(None, limits), schema)
    }));
    built.is_ok()
}

/// The pattern of the names that a schema of names allows; `None` when it says more than patterns can.
pub(super) fn of_names(schema: &Map<String, Value>) -> Option<String> {
    let mut pattern = None;
    let mut lengths = (None, None);
    for (key, value) in schema {
        let said = match key.as_str() {
            "pattern" => translate(value.as_str()?)?,
            "const" => exactly(std::slice::from_ref(value))?,
            "enum" => exactly(value.as_array()?)?,
            "minLength" => {
                lengths.0 = Some(value.as_u64()?);
                continue;
            }
            "maxLength" => {
                lengths.1 = Some(value.as_u64()?);
                continue;
            }
            "type" if value == "string" => continue,
            "title" | "description" | "$comment" | "examples" | "default" => continue,
            _ => return None,
        };
        if pattern.replace(said).is_some() {
            return None;
        }
    }
    match (pattern, lengths) {
        (Some(pattern), (None, None)) => Some(pattern),
        (None, (least, most)) => {
            let most = most.map_or(String::new(), |most| most.to_string());
            Some(format!(r"^[\s\S]{{{},{most}}}$", least.unwrap_or(0)))
        }
        (Some(_), _) => None,
    }
}

/// The pattern of these strings; what is no string is no name.
fn exactly(values: &[Value]) -> Option<String> {
    let names: Vec<_> = values
        .iter()
        .filter_map(Value::as_str)
        .map(regex_syntax::escape)
        .collect();
    match names.is_empty() {
        true => None,
        false => Some(format!("^(?:{})$", names.join("|"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javascripts_dialect_is_translated() {
        let check = |pattern: &str, rust: Option<&str>| {
            assert_eq!(translate(pattern).as_deref(), rust, "{pattern}");
        };
        check(r"^a\/b$", Some(r"^a/b$"));
        check(r"[[a&&b~]", Some(r"[\[a\&\&b\~]"));
        check(r"[^]x[]", Some(r"[\s\S]x[^\s\S]"));
        check(r"\cA", Some(r"\x01"));
        check("a.b[.]", Some(r"a[^\n\r\x{2028}\x{2029}]b[.]"));
        check(r"\x41\u00e9", Some(r"\x41\u00e9"));
        check(r"(?=a)b", None);
        check(r"(a)\1", None);
        check(r"\Ax", None);
        check("(", None);
    }

    #[test]
    fn names_become_patterns() {
        let check = |schema: Value, pattern: Option<&str>| {
            let found = of_names(schema.as_object().unwrap());
            assert_eq!(found.as_deref(), pattern, "{schema}");
        };
        check(json!({"pattern": "^x", "type": "string"}), Some("^x"));
        check(json!({"enum": ["a.b", 1, "c"]}), Some(r"^(?:a\.b|c)$"));
        check(json!({"maxLength": 3}), Some(r"^[\s\S]{0,3}$"));
        check(json!({"pattern": "^x", "maxLength": 3}), None);
        check(json!({"format": "uri"}), None);
    }
}
