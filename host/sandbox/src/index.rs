//! The vocabulary as masks are computed over it.

use crate::vocabulary::nodes;
use llguidance::derivre::Regex;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use toktrie::{Recognizer, SimpleVob, TokEnv, TokTrie, TokenId};

/// Sets of tokens that a mask takes as a whole where the text may go on with any of them, so that only the
/// others are walked. Each holds the next one. First come the characters of a JSON string, then no more of
/// them than most bounds on a length leave room for, last words: a pattern with a bound is in a new state after each
/// token, and nothing is known of that state yet.
const SETS: [&str; 4] = [
    r#"[^"\\\x00-\x1F\x7F]+"#,
    r#"[^"\\\x00-\x1F\x7F]{1,30}"#,
    r#"[^"\\\x00-\x1F\x7F]{1,10}"#,
    "[a-zA-Z ]{1,10}",
];

/// Work on the lexer to find out whether a set fits, in llguidance's units: some 70 µs.
const BUDGET: u64 = 1_000;

/// Computes masks: the grammar engine's own index of [`SETS`] holds some twenty tries with all that belongs to
/// one, this one a list of nodes per set.
pub(crate) struct Index {
    env: TokEnv,
    sets: Vec<Set>,
}

struct Set {
    tokens: SimpleVob,
    others: Nodes,
}

impl Index {
    /// # Errors
    /// When the engine refuses a pattern.
    pub(crate) fn new(env: &TokEnv) -> Result<Self, String> {
        let sets = SETS.iter().map(|pattern| Set::new(env.tok_trie(), pattern));
        Ok(Self {
            env: env.clone(),
            sets: sets.collect::<Result<_, _>>()?,
        })
    }

    /// The patterns, which every lexer must know by their places.
    pub(crate) fn patterns() -> Vec<String> {
        SETS.map(str::to_owned).to_vec()
    }

    /// The largest set of which every token fits here.
    fn fitting(&self, parser: &mut ParserRecognizer<'_>) -> Option<&Set> {
        let state = parser.lexer_state();
        let lexer = parser.lexer_mut();
        if !lexer.subsume_possible(state) {
            return None;
        }
        let mut sets = self.sets.iter().enumerate();
        let fits = |&(place, _): &(usize, &Set)| {
            let fits = lexer.check_subsume(state, place, BUDGET, None);
            fits.unwrap_or(false)
        };
        sets.find(fits).map(|(_, set)| set)
    }
}

impl BiasComputer for Index {
    fn compute_bias(&self, parser: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut mask = self.trie().alloc_token_set();
        let set = match start.is_empty() {
            true => self.fitting(parser),
            false => None,
        };
        match set {
            Some(set) => {
                parser.stats_mut().slices_applied += 1;
                mask.or(&set.tokens);
                set.others.walk(parser, &mut mask);
            }
            None => self.trie().add_bias(parser, &mut mask, start),
        }
        mask
    }

    fn trie(&self) -> &TokTrie {
        self.env.tok_trie()
    }
}

impl Set {
    fn new(trie: &TokTrie, pattern: &str) -> Result<Self, String> {
        let mut pattern = Regex::new(pattern).map_err(|error| format!("{error:#}"))?;
        let mut tokens = trie.alloc_token_set();
        for token in 0..trie.vocab_size() as TokenId {
            let bytes = trie.token(token);
            if !bytes.is_empty() && pattern.is_match_bytes(bytes) {
                tokens.allow_token(token);
            }
        }
        let others = Nodes(nodes(&trie.filter(&tokens.negated())));
        tokens.trim_trailing_zeros();
        Ok(Self { tokens, others })
    }
}

/// A trie's nodes in the layout of [`crate::Vocabulary::flat_trie`], two words each.
struct Nodes(Vec<[u32; 2]>);

impl Nodes {
    /// Adds the tokens that may come next.
    fn walk(&self, parser: &mut impl Recognizer, mask: &mut SimpleVob) {
        parser.trie_started("index");
        let (mut at, mut climb) = (1, 0);
        while let Some(&[bits, shape]) = self.0.get(at) {
            parser.pop_bytes(climb);
            let (token, byte) = (bits >> 8, bits as u8);
            let (size, parents) = ((shape >> 10) as usize, (shape & 0x3ff) as usize + 1);
            if parser.try_push_byte(byte) {
                if token != 0x00ff_ffff {
                    mask.allow_token(token);
                }
                climb = if size == 1 { parents } else { 0 };
                at += 1;
            } else {
                // It was not entered.
                climb = parents - 1;
                at += size;
            }
        }
        parser.pop_bytes(climb);
        parser.trie_finished();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::Parsers;
    use llguidance::api::{ParserLimits, TopLevelGrammar};
    use llguidance::{Matcher, ParserFactory};
    use proptest::prelude::*;
    use serde_json::json;
    use std::sync::{Arc, LazyLock};
    use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo};

    const PIECES: [&str; 17] = [
        "a",
        "the",
        "Q",
        " ",
        "\"",
        "\\",
        "1",
        "20",
        "\n",
        "{\"",
        "\":",
        "é",
        "日本",
        ", ",
        "-",
        "zebra ",
        "a long stretch of text, ",
    ];

    /// All bytes, and a thousand words that mix what JSON texts and words are made of.
    fn words() -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        while words.len() < 1_256 {
            let count = 1 + next(8);
            let word: String = (0..count).map(|_| PIECES[next(PIECES.len())]).collect();
            if !words.contains(&word.as_bytes().to_vec()) {
                words.push(word.into_bytes());
            }
        }
        words.push(b"\xff<end>".to_vec());
        words
    }

    /// Parsers as they are made here, and as llguidance makes them when it walks the whole vocabulary.
    static BOTH: LazyLock<(Parsers, ParserFactory)> = LazyLock::new(|| {
        let words = words();
        let count = words.len() as u32;
        let trie = TokTrie::from(&TokRxInfo::new(count, count - 1), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let plain = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
        (Parsers::new(&env).unwrap(), plain.unwrap())
    });

    fn grammars() -> Vec<TopLevelGrammar> {
        let schemas = [
            json!({"type": "string"}),
            json!({"type": "object", "properties": {"the": {"type": "string", "maxLength": 12}, "a": {"type": "integer"}},
                "required": ["the"]}),
            json!({"type": "array", "items": {"type": "string", "maxLength": 40}}),
            json!({"type": "string", "pattern": "^[a-z]{2,20}( [a-z]{1,8}){0,4}$"}),
            json!({}),
        ];
        let patterns = [
            "[a-zA-Z ]{3,25}",
            "[^\"]{0,33}",
            "(?s:.*)",
            "[0-9, ]+|the zebra.*",
        ];
        let schemas = schemas.map(TopLevelGrammar::from_json_schema);
        let patterns = patterns.map(TopLevelGrammar::from_regex);
        schemas.into_iter().chain(patterns).collect()
    }

    /// Walks both by the same choices; returns how often a set was taken as a whole.
    fn walk(grammar: &TopLevelGrammar, choices: &[u16]) -> usize {
        let (ours, plain) = &*BOTH;
        let parser = ours.create(grammar.clone(), ParserLimits::default());
        let mut ours = Matcher::new(Ok(parser.unwrap()));
        let mut plain = Matcher::new(plain.create_parser(grammar.clone()));
        let mut taken = 0;
        for &choice in choices {
            let mask = ours.compute_mask().unwrap();
            assert_eq!(mask, plain.compute_mask().unwrap());
            taken += ours.last_step_stats().unwrap().slices_applied;
            let allowed = mask.to_list();
            let token = allowed[usize::from(choice) % allowed.len()];
            ours.consume_token(token).unwrap();
            plain.consume_token(token).unwrap();
            if ours.is_stopped() {
                break;
            }
        }
        taken
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn masks_are_those_of_a_walk_over_the_whole_vocabulary(
            place in 0_usize..9,
            choices in prop::collection::vec(any::<u16>(), 1..40),
        ) {
            walk(&grammars()[place], &choices);
        }
    }

    #[test]
    fn sets_are_taken_where_they_fit() {
        // Inside a string, inside one with a bound, and inside words with a bound.
        for (place, fits) in [(0, true), (2, true), (5, true), (8, false)] {
            let taken = walk(&grammars()[place], &[7; 12]);
            assert_eq!(taken > 0, fits, "grammar {place}");
        }
    }

    #[test]
    fn each_set_holds_the_next_one_and_none_is_empty() {
        let index = BOTH.0.index();
        for pair in index.sets.windows(2) {
            let (outer, inner) = (&pair[0].tokens, &pair[1].tokens);
            assert!(inner.iter().all(|token| outer.is_allowed(token)));
            assert!(0 < inner.num_set() && inner.num_set() < outer.num_set());
        }
    }
}
