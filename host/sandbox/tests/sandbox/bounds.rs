//! What masks cost does not depend on how large a schema's bounds are.

use crate::world::{grammars, pieces};
use formwork_sandbox::{Grammars, Source};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pointers left to validation, and the time of the first masks of a value.
fn walk(grammars: &Arc<Grammars>, schema: &str) -> (Vec<String>, Duration) {
    let source = Source::JsonSchema(schema.into());
    let grammar = grammars.compile(&source).unwrap();
    let begun = Instant::now();
    let mut matcher = grammar.start();
    for step in 0..30u32 {
        // A mask that is too costly is an error.
        let mask = matcher
            .mask()
            .unwrap_or_else(|error| panic!("{schema}: {error}"));
        let letter = u32::from(b'a' + (step % 7) as u8);
        let token = match mask.is_allowed(letter) {
            true => letter,
            false => mask.iter().next().unwrap(),
        };
        if grammars.vocabulary().is_end(token) {
            break;
        }
        matcher.commit(token).unwrap();
    }
    (grammar.unmasked().to_vec(), begun.elapsed())
}

#[test]
fn masks_do_not_depend_on_bounds() {
    let cases: [(&str, &[&str]); 9] = [
        (r#"{"type":"string","maxLength":N}"#, &[]),
        (r#"{"type":"string","minLength":N}"#, &[]),
        (r#"{"type":"string","pattern":"^[a-z ]{1,N}$"}"#, &[]),
        (r#"{"type":"string","pattern":"^.{1,N}$"}"#, &[]),
        (
            r#"{"type":"string","pattern":"^[a-z]+$","maxLength":N}"#,
            &[],
        ),
        (
            r#"{"type":"string","pattern":"^([a-z]+-){0,40}[a-z]+$","maxLength":N}"#,
            &[],
        ),
        (r#"{"type":"object","propertyNames":{"maxLength":N}}"#, &[]),
        (
            r#"{"type":"array","items":{"type":"integer"},"minItems":N}"#,
            &[],
        ),
        (
            r#"{"type":"array","items":{"type":"integer"},"maxItems":N}"#,
            &[],
        ),
    ];
    let grammars = grammars(pieces());
    for (schema, unmasked) in cases {
        let (_, small) = walk(&grammars, &schema.replace('N', "300"));
        for bound in ["65536", "100000"] {
            let (found, large) = walk(&grammars, &schema.replace('N', bound));
            assert_eq!(found, unmasked, "{schema} {bound}");
            let most = 10 * small + Duration::from_secs(1);
            assert!(
                large < most,
                "{schema} {bound}: {large:?}, {small:?} at 300"
            );
        }
    }
}

/// Where bounds do make masks dear, the one that does is validated instead, and no request fails half-way.
#[test]
fn dear_bounds_are_left_to_validation() {
    let cases: [(&str, &[&str]); 4] = [
        (
            r#"{"type":"string","pattern":"^(?:\\S+\\s+){0,6553}\\S+$","maxLength":65535}"#,
            &["/maxLength"],
        ),
        (
            r#"{"type":"string","pattern":"^(?:\\S+\\s+){0,300}\\S+$","maxLength":3000}"#,
            &["/maxLength"],
        ),
        (
            r#"{"type":"object","patternProperties":{"^.{1,65535}$":{"type":"string"}}}"#,
            &["/patternProperties"],
        ),
        // Cheap ones of the same kinds stay with the mask.
        (
            r#"{"type":"string","pattern":"^(?:[a-z]+ ){0,3}[a-z]+$","maxLength":40}"#,
            &[],
        ),
    ];
    let grammars = grammars(pieces());
    for (schema, unmasked) in cases {
        let (found, _) = walk(&grammars, schema);
        assert_eq!(found, unmasked, "{schema}");
    }
}
