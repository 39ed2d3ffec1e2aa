//! Sources of grammars: each compiles or is refused in time, and what comes out is in the language.

use crate::dice::Dice;
use crate::languages::is_out_of_range;
use crate::walks::explore;
use crate::world::compile;
use formwork_plugin_grammar::recogniser;
use formwork_sandbox::{Grammar, Source};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use std::sync::Arc;

/// Walks of each grammar.
const WALKS: usize = 2;

/// Complete outputs of a grammar.
fn outputs(grammar: &Arc<Grammar>, mut dice: Dice) -> Vec<Vec<u8>> {
    let walks = (0..WALKS).filter_map(|_| explore(grammar, &mut dice));
    walks.collect()
}

/// The same of a grammar that describes text.
fn texts(grammar: &Arc<Grammar>, dice: Dice) -> Vec<String> {
    let outputs = outputs(grammar, dice).into_iter();
    outputs
        .map(|output| String::from_utf8(output).expect("outputs are text"))
        .collect()
}

/// Any text as a JSON Schema. A complete output is JSON; it is valid where the mask is said to enforce
/// everything, and elsewhere exactly when the grammar's own validation says so.
pub fn schema(data: &[u8]) {
    let Some((text, dice)) = Dice::split(data) else {
        return;
    };
    let Some(grammar) = compile(&Source::JsonSchema(text.to_owned().into())) else {
        return;
    };
    let oracle = validator(text);
    for output in texts(&grammar, dice) {
        let value: Value = match serde_json::from_str(&output) {
            Ok(value) => value,
            Err(error) if is_out_of_range(&error) => continue,
            Err(error) => panic!("{text} allowed {output:?}: {error}"),
        };
        let Some(oracle) = &oracle else { continue };
        if !is_exact(&output) {
            continue;
        }
        let valid = oracle.is_valid(&value);
        let validated = grammar.validate(output.as_bytes());
        let validated = validated.map_err(|invalid| invalid.to_string());
        let unmasked = grammar.unmasked();
        match validated {
            Ok(()) => assert!(valid, "{text} allowed {output}, unmasked {unmasked:?}"),
            // The validator gives up on what would take too long, and sees keys that this reader loses.
            Err(reason) if GIVEN_UP.iter().any(|mark| reason.contains(mark)) => {}
            Err(reason) => assert!(!valid, "{text} turned {output} down: {reason}"),
        }
    }
}

/// What the grammar's validation says of texts that the oracle cannot judge.
const GIVEN_UP: [&str; 3] = ["too often", "longer", "is there twice"];

/// Whether every number of the text is read as it is written: validators count in doubles.
fn is_exact(text: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let mut numbers = text.split(|c| !digits(c));
    numbers.all(|number| number.len() < 16) && !text.contains(['e', 'E'])
}

/// The schema's meaning by itself, not told anything by the sandbox.
fn validator(text: &str) -> Option<Validator> {
    let schema: Value = serde_json::from_str(text).ok()?;
    // The sandbox reads every dialect but draft 7 as 2020-12.
    let draft = match schema.get("$schema").and_then(Value::as_str) {
        Some(uri) if uri.contains("draft-07") => Draft::Draft7,
        _ => Draft::Draft202012,
    };
    jsonschema::options()
        .with_draft(draft)
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(200_000))
        .build(&schema)
        .ok()
}

/// Any text as a regex. What is complete matches it as a whole.
pub fn regex(data: &[u8]) {
    let Some((text, dice)) = Dice::split(data) else {
        return;
    };
    let Some(grammar) = compile(&Source::Regex(text.to_owned())) else {
        return;
    };
    let oracle = regex::RegexBuilder::new(&format!(r"\A(?:{text})\z"))
        .size_limit(1 << 20)
        .build();
    for output in texts(&grammar, dice) {
        if let Ok(oracle) = &oracle {
            assert!(oracle.is_match(&output), "/{text}/ allowed {output:?}");
        }
    }
}

/// Any text as a Lark grammar. What is complete is text, save where the grammar asks for bytes: a complement is
/// taken over all of them.
pub fn lark(data: &[u8]) {
    let Some((text, dice)) = Dice::split(data) else {
        return;
    };
    let Some(grammar) = compile(&Source::Lark(text.to_owned())) else {
        return;
    };
    let of_bytes = text.contains('~') || text.contains("allow_invalid_utf8");
    for output in outputs(&grammar, dice) {
        let is_text = std::str::from_utf8(&output).is_ok();
        assert!(
            of_bytes || is_text,
            "{text}\nallowed {}",
            output.escape_ascii()
        );
    }
}

/// Longest output that the recogniser is asked about; it tries every place with every rule.
const RECOGNISED_CHARS: usize = 40;

/// Any text as GBNF. Its translation compiles, or is too costly; what is complete is in the language that the
/// GBNF describes by itself.
pub fn gbnf(data: &[u8]) {
    let Some((text, dice)) = Dice::split(data) else {
        return;
    };
    let Ok(lark) = formwork_plugin_grammar::to_lark(text) else {
        return;
    };
    let source = Source::Lark(lark.clone());
    let Some(grammar) = compile(&source) else {
        let limits = ["limit", "too ", "max is", "fuel", "Too"];
        let refusal = crate::world::grammars().compile(&source).map(|_| ());
        let refusal = refusal.expect_err("it was refused before").to_string();
        let costly = limits.iter().any(|limit| refusal.contains(limit));
        assert!(costly, "{text}\nbecame\n{lark}\n{refusal}");
        return;
    };
    for output in texts(&grammar, dice) {
        if output.chars().count() <= RECOGNISED_CHARS {
            let recognised = recogniser::matches(text, &output);
            assert!(
                recognised != Some(false),
                "{text}\nallowed {output:?}\n{lark}"
            );
        }
    }
}
