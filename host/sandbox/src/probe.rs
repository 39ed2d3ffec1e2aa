//! Tries out what masks of a part of a schema cost, before a grammar is made of the whole.

use crate::grammar::Grammar;
use crate::grammars::is_exhaustion;
use crate::matcher::Matcher;
use crate::parsers::Parsers;
use crate::{Failure, Vocabulary};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use serde_json::Value;
use toktrie::TokenId;

/// What a text begins with, in order of preference, at its start and after it.
const OPENINGS: [&str; 3] = ["{\"", "\"", "{"];
const FILLERS: [&str; 5] = ["a", "A", "0", " ", "\""];
/// Masks that are tried: in costly states the first ones are the dearest.
const MASKS: usize = 5;

/// Whether masks of a JSON Schema in the grammar engine's terms keep within `limits`, at the beginning of a
/// text. What the engine does not take at all counts as cheap: that comes up where the whole is compiled.
pub(crate) fn is_cheap(
    parsers: &Parsers,
    vocabulary: &Vocabulary,
    limits: ParserLimits,
    schema: Value,
) -> bool {
    let Ok(parser) = parsers.create(TopLevelGrammar::from_json_schema(schema), limits) else {
        return true;
    };
    let walked = Grammar::new(vocabulary.clone(), parser, 1, None)
        .and_then(|grammar| walk(&mut grammar.start(), vocabulary));
    walked.map_or_else(|failure| !is_exhaustion(&failure.message), |()| true)
}

fn walk(matcher: &mut Matcher, vocabulary: &Vocabulary) -> Result<(), Failure> {
    for step in 0..MASKS {
        let mask = matcher.mask()?;
        if matcher.stopped() {
            break;
        }
        let texts: &[&str] = match step {
            0 => &OPENINGS,
            _ => &FILLERS,
        };
        let fits = |text: &&str| {
            let tokens = vocabulary.tokenize(text.as_bytes());
            let token: TokenId = *tokens.first()?;
            mask.is_allowed(token).then_some(token)
        };
        let any = || mask.iter().find(|&token| vocabulary.is_text(token));
        let Some(token) = texts.iter().find_map(fits).or_else(any) else {
            break;
        };
        matcher.commit(token)?;
    }
    Ok(())
}
