//! Walks under the mask that go back and forth, and what must hold at each of their steps.

use crate::closing::close;
use crate::dice::Dice;
use crate::languages::LANGUAGES;
use crate::world::compile;
use formwork_sandbox::{Failure, FailureKind, Grammar, Matcher, SimpleVob, TokenId, Vocabulary};
use std::sync::Arc;

/// Steps of one walk.
const STEPS: usize = 48;

/// A walk and the tokens that it should hold.
struct Walk {
    grammar: Arc<Grammar>,
    vocabulary: Vocabulary,
    matcher: Matcher,
    tokens: Vec<TokenId>,
}

/// Why a walk goes no further, although nothing is wrong.
struct Spent;

/// Only a limit on work may end a walk; nothing else fails under the mask.
fn within_limits<T>(outcome: Result<T, Failure>, what: &str) -> Result<T, Spent> {
    outcome.map_err(|failure| {
        assert_eq!(
            failure.kind,
            FailureKind::InvalidParams,
            "{what}: {failure}"
        );
        Spent
    })
}

impl Walk {
    fn new(grammar: &Arc<Grammar>) -> Self {
        Self {
            grammar: grammar.clone(),
            vocabulary: grammar.vocabulary().clone(),
            matcher: grammar.start(),
            tokens: Vec::new(),
        }
    }

    fn text(&self) -> Vec<u8> {
        let bytes = self
            .tokens
            .iter()
            .map(|&token| self.vocabulary.bytes(token));
        bytes.collect::<Vec<_>>().concat()
    }

    /// The mask, which holds end tokens exactly where the text is complete and no other special ones.
    fn mask(&mut self) -> Result<SimpleVob, Spent> {
        let mask = within_limits(self.matcher.mask(), "the mask")?;
        assert_eq!(mask.len(), self.vocabulary.size() as usize);
        assert!(!mask.is_zero(), "an empty mask after {:?}", self.text());
        let accepting = self.matcher.accepting();
        for &end in self.vocabulary.end() {
            assert_eq!(mask.is_allowed(end), accepting, "after {:?}", self.text());
        }
        mask.iter_set_entries(|token| {
            let token = token as TokenId;
            let known = self.vocabulary.is_text(token) || self.vocabulary.is_end(token);
            assert!(known, "token {token} after {:?}", self.text());
        });
        if self.matcher.stopped() {
            let ends = mask.to_list();
            assert_eq!(ends, self.vocabulary.end(), "after {:?}", self.text());
        }
        Ok(mask)
    }

    fn commit(&mut self, token: TokenId) -> Result<(), Spent> {
        within_limits(self.matcher.commit(token), "a token of the mask")?;
        self.tokens.push(token);
        assert_eq!(self.matcher.committed(), self.tokens.len());
        Ok(())
    }

    /// One token is in the mask exactly when it can be committed; where the text is forced the mask holds its
    /// canonical spelling only.
    fn compare(&mut self, mask: &SimpleVob, token: TokenId) -> Result<(), Spent> {
        let mut other = self.matcher.fork();
        let fits = match other.commit(token) {
            Ok(()) => true,
            Err(failure) if failure.kind == FailureKind::InvalidParams => return Err(Spent),
            Err(_) => {
                // A refused token changes nothing.
                assert_eq!(other.committed(), self.tokens.len());
                assert_eq!(within_limits(other.mask(), "after a refusal")?, *mask);
                false
            }
        };
        let forced = !self.matcher.forced().is_empty();
        let agrees = mask.is_allowed(token) == fits || (forced && fits);
        assert!(agrees, "token {token} after {:?}", self.text());
        Ok(())
    }

    /// What the grammar forces is what the mask allows.
    fn follow(&mut self) -> Result<(), Spent> {
        let forced = self.matcher.forced();
        let mut spelled = Vec::new();
        for token in self.matcher.forced_tokens() {
            let mask = self.mask()?;
            assert!(mask.is_allowed(token), "a forced token is not allowed");
            spelled.extend_from_slice(self.vocabulary.bytes(token));
            self.commit(token)?;
        }
        assert!(forced.starts_with(&spelled), "{forced:?} {spelled:?}");
        Ok(())
    }

    /// A walk that went back is as if it had never gone.
    fn matches_a_fresh_one(&mut self) -> Result<(), Spent> {
        let mut fresh = Walk::new(&self.grammar);
        for &token in &self.tokens {
            fresh.commit(token)?;
        }
        let at = self.text();
        assert_eq!(self.matcher.committed(), self.tokens.len());
        assert_eq!(
            self.matcher.accepting(),
            fresh.matcher.accepting(),
            "{at:?}"
        );
        assert_eq!(self.matcher.stopped(), fresh.matcher.stopped(), "{at:?}");
        assert_eq!(self.matcher.forced(), fresh.matcher.forced(), "{at:?}");
        let (mask, other) = (self.mask()?, fresh.mask()?);
        assert_eq!(mask.to_list(), other.to_list(), "{at:?}");
        Ok(())
    }

    fn go_back(&mut self, keep: usize) -> Result<(), Spent> {
        let back = self.tokens.len() - keep;
        within_limits(self.matcher.rollback(back), "a rollback")?;
        self.tokens.truncate(keep);
        self.matches_a_fresh_one()
    }

    /// Goes on by one choice; `false` at the end.
    fn step(&mut self, dice: &mut Dice) -> Result<bool, Spent> {
        match dice.roll(16) {
            0 => self.go_back(dice.roll(self.tokens.len() + 1))?,
            1 => self.matcher = self.matcher.fork(),
            2 => self.follow()?,
            3 => {
                let (before, mut other) = (self.matcher.committed(), self.matcher.fork());
                assert!(other.rollback(before + 1).is_err());
                let mask = self.mask()?;
                let token = dice.roll(self.vocabulary.size() as usize) as TokenId;
                self.compare(&mask, token)?;
            }
            _ => {
                let mask = self.mask()?;
                let allowed = mask.to_list();
                let token = *dice.pick(&allowed);
                self.commit(token)?;
                if self.vocabulary.is_end(token) {
                    let mask = self.mask()?;
                    assert_eq!(mask.to_list(), self.vocabulary.end(), "past an end");
                    self.tokens.pop();
                    within_limits(self.matcher.rollback(1), "an end taken back")?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn run(&mut self, dice: &mut Dice) -> Result<(), Spent> {
        for _ in 0..STEPS {
            if !self.step(dice)? {
                break;
            }
        }
        self.matches_a_fresh_one()
    }
}

/// A random walk and its end: the complete text, unless a limit on work or on the search for an end came first.
pub(crate) fn explore(grammar: &Arc<Grammar>, dice: &mut Dice) -> Option<Vec<u8>> {
    let mut walk = Walk::new(grammar);
    walk.run(dice).ok()?;
    let mut text = walk.text();
    text.extend(close(&walk.matcher, &text, dice)?);
    Some(text)
}

/// Token streams with rollbacks, forks and forced text over known languages: each comes to an end, and what
/// is complete is in the language. The text of the input says which language.
pub fn walk(data: &[u8]) {
    let Some((&first, choices)) = data.split_first() else {
        return;
    };
    let language = &LANGUAGES[usize::from(first) % LANGUAGES.len()];
    let grammar = compile(&language.source()).expect("known languages compile");
    let mut dice = Dice::new(choices, data);
    let text = explore(&grammar, &mut dice).expect("known languages can be closed");
    let text = String::from_utf8(text).expect("outputs are text");
    assert!(language.holds(&text), "{language:?} allowed {text:?}");
}
