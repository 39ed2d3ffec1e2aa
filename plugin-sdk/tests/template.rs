//! Templates: what they allow, how the model chooses, what they refuse.

use formwork_plugin_sdk::FailureKind;
use formwork_plugin_sdk::prelude::*;
use formwork_plugin_sdk::testing::{Outcome, Trace};

/// An order: a customer, an optional note, up to three items, and a way to pay.
struct Order;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {}

impl Format for Order {
    type Params = Params;
    const PARAMS: &'static str = r#"{"type":"object","additionalProperties":false}"#;

    fn open(_: Params, _: &Request) -> Result<Self, Failure> {
        Ok(Order)
    }

    fn template(&self) -> Template {
        let item = Template::new()
            .literal("\"")
            .field(Field::regex("item", "[a-z]+"))
            .literal("\"");
        Template::new()
            .literal("{\"customer\":")
            .field(Field::regex("customer", "[0-9]+"))
            .optional(
                "note",
                Template::new()
                    .literal(",\"note\":\"")
                    .field(Field::json_text("note", 0, 20))
                    .literal("\""),
            )
            .literal(",\"items\":[")
            .repeat("items", 0..=3, ",", item)
            .literal("]")
            .either(
                "payment",
                [
                    Template::new().literal(",\"cash\":true"),
                    Template::new()
                        .literal(",\"iban\":\"")
                        .field(Field::regex("iban", "[A-Z]{2}[0-9]{2}"))
                        .literal("\""),
                ],
            )
            .literal("}")
    }
}

fn order(text: &str) -> Outcome {
    Trace::of::<Order>(json!({})).text(text).run()
}

fn fields(outcome: &Outcome) -> Vec<(String, String)> {
    let pair = |field: &formwork_plugin_sdk::testing::FieldOutcome| {
        (field.name.clone(), field.text().into_owned())
    };
    outcome.fields.iter().map(pair).collect()
}

#[test]
fn every_way_through_a_template() {
    let notes = ["", ",\"note\":\"\"", ",\"note\":\"caf\\u00e9 ü😀\""];
    let lists = ["", "\"a\"", "\"a\",\"bc\"", "\"a\",\"b\",\"c\""];
    let payments = [",\"cash\":true", ",\"iban\":\"DE12\""];
    for note in notes {
        for list in lists {
            for payment in payments {
                let text = format!("{{\"customer\":42{note},\"items\":[{list}]{payment}}}");
                order(&text).assert_output(&text);
            }
        }
    }
}

#[test]
fn fields_come_in_order_without_the_choices() {
    let outcome = order("{\"customer\":7,\"items\":[\"a\",\"bc\"],\"iban\":\"DE12\"}");
    let expected = [
        ("customer", "7"),
        ("item", "a"),
        ("item", "bc"),
        ("iban", "DE12"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(fields(&outcome), expected);
}

#[test]
fn what_does_not_fit_is_rejected_where_it_stands() {
    let cases = [
        ("{\"customer\":x", 12, "allowed: \"0\" \"1\""),
        ("{\"customer\":7,\"items\":[\"A\"", 24, "field `item`"),
        (
            "{\"customer\":7,\"items\":[\"a\",\"a\",\"a\",\"a\"]",
            33,
            "then \"\\\"]\" follows",
        ),
        ("{\"customer\":7,\"items\":[],\"card\":1}", 28, "`?payment`"),
        (
            "{\"customer\":7,\"items\":[],\"cash\":true}!",
            37,
            "goes on with \"!\"",
        ),
        (
            "{\"customer\":7,\"items\":[],\"cash\":true",
            36,
            "allowed: \"}\"",
        ),
    ];
    for (text, at, why) in cases {
        let outcome = order(text);
        let rejection = outcome
            .rejection()
            .cloned()
            .unwrap_or_else(|| panic!("{text}: {outcome}"));
        assert!(rejection.why.contains(why), "{text}: {outcome}");
        assert_eq!(rejection.at, at, "{text}: {outcome}");
    }
}

fn problem(template: Template) -> String {
    template
        .validate()
        .map_or_else(|error| error.to_string(), |()| "fine".into())
}

fn digits(name: &str) -> Template {
    Template::new().field(Field::regex(name, "[0-9]+"))
}

fn begins(text: impl AsRef<[u8]>) -> Template {
    Template::new().literal(text).append(digits("n"))
}

fn check_problems<const N: usize>(cases: [(Template, &str); N]) {
    for (template, expected) in cases {
        let found = problem(template);
        assert!(
            found.starts_with(expected),
            "expected {expected:?}, got {found:?}"
        );
    }
}

#[test]
fn ways_that_cannot_be_told_apart_are_refused() {
    let empty = Template::new;
    let no_literal = "the model chooses by the literals";
    check_problems([
        (
            empty().optional("note", digits("n")).literal("."),
            &format!("part `note`: {no_literal}"),
        ),
        (
            empty().optional("note", begins("ab")).literal("abc"),
            "part `note`: two ways to go on cannot be told apart: one begins with \"ab\"",
        ),
        (
            empty().repeat("list", 0.., ",", digits("n")).literal("]"),
            &format!("part `list`: {no_literal}"),
        ),
        (
            // Only a clash once two items are there.
            empty()
                .repeat("list", 2..=3, ",", begins("x"))
                .literal(",xy"),
            "part `list`: two ways to go on",
        ),
        (
            empty().either("kind", [begins("x"), begins([0xff])]),
            "part `kind`: a literal that begins a way to go on is not UTF-8",
        ),
    ]);
}

#[test]
fn impossible_and_endless_parts_are_refused() {
    let empty = Template::new;
    let (min, max) = (3, 2);
    check_problems([
        (
            empty()
                .repeat("list", min..=max, ",", begins("x"))
                .literal("]"),
            "part `list`: at least 3 but at most 2",
        ),
        (
            empty().repeat("list", 0.., "", empty()).literal("]"),
            "part `list`: more than 256 ways",
        ),
        (
            empty().either("kind", []),
            "part `kind`: it has no alternative",
        ),
    ]);
}

#[test]
fn ways_that_can_be_told_apart_are_fine() {
    let empty = Template::new;
    check_problems([
        (
            empty().repeat("list", 1.., ",", digits("n")).literal("]"),
            "fine",
        ),
        (empty().repeat("list", 0.., "", begins("x")), "fine"),
        (
            empty()
                .optional("a", begins("a"))
                .optional("b", begins("b")),
            "fine",
        ),
    ]);
}

#[test]
fn many_optional_parts_are_checked_fast() {
    let mut template = Template::new();
    for index in 0..40 {
        let part = Template::new()
            .literal(format!(",f{index:02}="))
            .append(digits("n"));
        template = template.optional(format!("f{index}"), part);
    }
    template.literal(".").validate().unwrap();
}

/// Optional at the very end; a part that depends on what came before.
struct Tail;

impl Format for Tail {
    type Params = Params;
    const PARAMS: &'static str = r#"{"type":"object","additionalProperties":false}"#;

    fn open(_: Params, _: &Request) -> Result<Self, Failure> {
        Ok(Tail)
    }

    fn template(&self) -> Template {
        Template::new()
            .field(Field::choice("kind", ["number", "word"]))
            .literal(":")
            .then(|values| match values.text("kind").as_ref() {
                "number" => digits("value"),
                _ => Template::new().field(Field::regex("value", "[a-z]+")),
            })
            .optional("bang", Template::new().literal("!"))
    }
}

#[test]
fn a_part_depends_on_values_and_the_end_is_optional() {
    for text in ["number:12", "number:12!", "word:ab", "word:ab!"] {
        Trace::of::<Tail>(json!({}))
            .text(text)
            .run()
            .assert_output(text);
    }
    let outcome = Trace::of::<Tail>(json!({})).text("number:ab").run();
    outcome.assert_rejected(7, "field `value`");
}

#[test]
fn unknown_params_are_refused_by_name() {
    let outcome = Trace::of::<Order>(json!({"colour": 1})).run();
    outcome.assert_failure(FailureKind::InvalidParams, "unknown field `colour`");
    let outcome = Trace::of_text::<Order>("{").run();
    outcome.assert_failure(FailureKind::InvalidParams, "EOF");
}
