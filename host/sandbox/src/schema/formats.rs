//! Formats: which the mask enforces, and by what.

use jsonschema::Draft;

/// What becomes of a format.
pub(super) struct Rule {
    /// The grammar engine's own rule holds.
    pub(super) native: bool,
    /// These patterns hold.
    pub(super) patterns: Vec<String>,
    /// Nothing is left to validation.
    pub(super) exact: bool,
}

impl Rule {
    fn native(exact: bool) -> Option<Self> {
        Some(Self {
            native: true,
            patterns: Vec::new(),
            exact,
        })
    }

    fn patterns(patterns: Vec<String>, exact: bool) -> Option<Self> {
        Some(Self {
            native: false,
            patterns,
            exact,
        })
    }
}

/// The rule for a format; `None` where nobody knows it, so that it asserts nothing.
pub(super) fn rule(name: &str, draft: Draft) -> Option<Rule> {
    match name {
        // Days of February and leap seconds are for the calendar.
        "date-time" | "date" | "time" => Rule::native(false),
        "ipv4" | "uri" | "uuid" | "duration" => Rule::native(true),
        // A-labels want decoding.
        "hostname" => Rule::native(false),
        "email" => Rule::patterns(
            vec![email(), r#"^(?:[^"@]{1,64}|".*")@.{1,189}$"#.into()],
            true,
        ),
        "ipv6" => Rule::patterns(vec![format!("^(?:{})$", ipv6())], true),
        "json-pointer" if draft >= Draft::Draft6 => {
            Rule::patterns(vec![format!("^{}$", json_pointer())], true)
        }
        "relative-json-pointer" if draft >= Draft::Draft7 => {
            let pattern = format!("^(?:0|[1-9][0-9]*)(?:#|{})$", json_pointer());
            Rule::patterns(vec![pattern], true)
        }
        "uri-reference" if draft >= Draft::Draft6 => {
            let pattern = r"^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?#\[\]]|%[0-9A-Fa-f]{2})*$";
            Rule::patterns(vec![pattern.into()], false)
        }
        _ if jsonschema::options().is_known_format(draft, name) => Rule::patterns(vec![], false),
        _ => None,
    }
}

fn json_pointer() -> &'static str {
    "(?:/(?:[^~/]|~[01])*)*"
}

fn ipv4() -> String {
    let byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    format!(r"(?:{byte}\.){{3}}{byte}")
}

/// RFC 5321's mailbox: dotted or quoted before the sign, a domain or an address literal after it.
fn email() -> String {
    let atom = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+";
    let quoted = r#""(?:[ !#-\[\]-~]|\\[ -~]){1,30}""#;
    let label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    let literal = format!(r"\[(?:{}|IPv6:(?:{}))\]", ipv4(), ipv6());
    format!(r"^(?:{atom}(?:\.{atom})*|{quoted})@(?:{label}(?:\.{label})*|{literal})$")
}

/// RFC 4291's text form, an IPv4 address at its end included.
fn ipv6() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let last = format!("(?:{group}:{group}|{})", ipv4());
    let mut forms = vec![
        format!("(?:{group}:){{6}}{last}"),
        format!("::(?:{group}:){{5}}{last}"),
    ];
    for before in 0..=4 {
        let after = 4 - before;
        forms.push(format!(
            "(?:(?:{group}:){{0,{before}}}{group})?::(?:{group}:){{{after}}}{last}"
        ));
    }
    forms.push(format!("(?:(?:{group}:){{0,5}}{group})?::{group}"));
    forms.push(format!("(?:(?:{group}:){{0,6}}{group})?::"));
    forms.join("|")
}
