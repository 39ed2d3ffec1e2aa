//! One walk through a compiled grammar.

use crate::grammar::{Grammar, Lane};
use crate::grammars::{clean, is_exhaustion};
use crate::mask::{along, widen};
use crate::spelling::At;
use crate::{Failure, Vocabulary};
use llguidance::panic_utils::catch_unwind;
use llguidance::{TokenParser, api::StopReason};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use toktrie::{SimpleVob, TokenId};

/// What llguidance says when no token fits.
const DEAD_END: &str = "NoExtensionBias";

/// One walk through a [`Grammar`]: a pure function of the grammar and the tokens committed.
pub struct Matcher {
    grammar: Arc<Grammar>,
    /// `None` until somebody asks for more than the start.
    live: Option<Box<Live>>,
    /// The context's last tokens, as told by [`Matcher::start_after`].
    tail: Vec<TokenId>,
    /// Committed tokens that are text.
    tokens: Vec<TokenId>,
    /// Where each of them leaves a JSON text with regard to escapes; empty for other texts.
    spelled: Vec<At>,
    /// End tokens committed after them.
    ended: usize,
}

#[derive(Clone)]
struct Live {
    lane: Arc<Lane>,
    walk: llguidance::Matcher,
    /// Bytes that the first tokens repeat from the context's end, which was chopped there.
    prefix: usize,
}

impl Matcher {
    pub(crate) fn new(grammar: &Arc<Grammar>) -> Self {
        Self {
            grammar: grammar.clone(),
            live: None,
            tail: Vec::new(),
            tokens: Vec::new(),
            spelled: Vec::new(),
            ended: 0,
        }
    }

    /// The tokens that may come next, one bit per row of the vocabulary. End tokens, all of them, are
    /// allowed exactly when the text is complete; other special tokens never. Where the grammar leaves
    /// no choice about the next bytes, only their canonical token is allowed.
    ///
    /// # Errors
    /// `Unsatisfiable` when no token fits; `InvalidParams` when a limit on the work for one mask is hit.
    pub fn mask(&mut self) -> Result<SimpleVob, Failure> {
        let vocabulary = self.vocabulary().clone();
        if self.stopped() {
            return Ok(vocabulary.ends().clone());
        }
        let live = self.live();
        let raw = live.walk.compute_mask().map_err(|error| {
            let message = clean(&error.to_string());
            if message == DEAD_END {
                return dead_end();
            }
            live.lane.condemn();
            failure(&message)
        })?;
        let mut mask = widen(&vocabulary, &raw);
        let accepting = live.walk.is_accepting().unwrap_or(false);
        if mask.is_zero() && !accepting {
            // The tokenizer spells the forced text with a special token; spell it with others.
            mask = along(&vocabulary, &live.walk.compute_ff_bytes());
        }
        self.narrow(&mut mask);
        if accepting {
            mask.or(vocabulary.ends());
        } else if mask.is_zero() {
            return Err(dead_end());
        }
        Ok(mask)
    }

    /// Takes in the token that was chosen. A refused token changes nothing.
    ///
    /// # Errors
    /// `Internal` when the grammar does not allow the token here; `InvalidParams` when a limit on the
    /// parser's work is hit.
    pub fn commit(&mut self, token: TokenId) -> Result<(), Failure> {
        if self.vocabulary().is_end(token) {
            if !self.accepting() {
                return Err(refused(token, "the output is not complete"));
            }
            self.ended += 1;
            return Ok(());
        }
        if self.ended > 0 {
            return Err(refused(token, "the output has ended"));
        }
        if !self.vocabulary().is_text(token) {
            return Err(refused(token, "it is a special token or none at all"));
        }
        let Some(spelled) = self.spell(token) else {
            return Err(refused(
                token,
                "it spells a character in another way than its only one",
            ));
        };
        if let Err(error) = self.live().walk.consume_token(token) {
            let reason = clean(&error.to_string());
            self.restart()?;
            return Err(if is_exhaustion(&reason) {
                failure(&reason)
            } else {
                refused(token, &reason)
            });
        }
        self.tokens.push(token);
        if self.grammar.spelling().is_some() {
            self.spelled.push(spelled);
        }
        Ok(())
    }

    /// Forgets the last `n` commits.
    ///
    /// # Errors
    /// `Internal` when fewer were made; nothing changes then.
    pub fn rollback(&mut self, n: usize) -> Result<(), Failure> {
        let committed = self.committed();
        if n > committed {
            return Err(Failure::internal(format!(
                "cannot take back {n} tokens, {committed} are committed"
            )));
        }
        let ends = n.min(self.ended);
        self.ended -= ends;
        let n = n - ends;
        self.tokens.truncate(self.tokens.len() - n);
        self.spelled.truncate(self.tokens.len());
        if n == 0 || self.live.is_none() {
            return Ok(());
        }
        let kept: usize = self
            .tokens
            .iter()
            .map(|&t| self.vocabulary().bytes(t).len())
            .sum();
        let live = self.live();
        // The parser behind does not hold the healed prefix, and cannot step back into it.
        if kept < live.prefix || live.walk.rollback(n).is_err() {
            return self.restart();
        }
        Ok(())
    }

    /// How many tokens are committed.
    pub fn committed(&self) -> usize {
        self.tokens.len() + self.ended
    }

    /// The bytes that every continuation starts with, those that healing chopped from the context
    /// included; empty where there is a choice or an end.
    pub fn forced(&mut self) -> Vec<u8> {
        if self.stopped() {
            return Vec::new();
        }
        self.live().walk.compute_ff_bytes()
    }

    /// The canonical tokens of the forced bytes, up to where a later byte could change them; empty where
    /// the tokenizer is not canonical.
    pub fn forced_tokens(&mut self) -> Vec<TokenId> {
        if self.stopped() {
            return Vec::new();
        }
        let mut tokens = self.live().walk.compute_ff_tokens();
        let text = |&token: &TokenId| self.vocabulary().is_text(token);
        tokens.truncate(tokens.iter().take_while(|token| text(token)).count());
        tokens
    }

    /// Whether what was committed is complete.
    pub fn accepting(&mut self) -> bool {
        self.ended > 0 || self.live().walk.is_accepting().unwrap_or(false)
    }

    /// Whether what was committed is complete and nothing but an end can follow.
    pub fn stopped(&self) -> bool {
        self.ended > 0
            || match &self.live {
                Some(live) => live.walk.stop_reason() == StopReason::NoExtension,
                None => self.grammar.only_empty(),
            }
    }

    /// A second walk from the same point.
    pub fn fork(&self) -> Self {
        Self {
            grammar: self.grammar.clone(),
            live: self.live.clone(),
            tail: self.tail.clone(),
            tokens: self.tokens.clone(),
            spelled: self.spelled.clone(),
            ended: self.ended,
        }
    }

    /// The compiled grammar.
    pub fn grammar(&self) -> &Arc<Grammar> {
        &self.grammar
    }

    /// Token healing, before the first commit: told the context's last tokens, says which should stand
    /// in their place. Bytes at the end may be chopped, so that the first sampled token is free to span
    /// the seam (it must begin with them); text that the grammar forces at its start may be appended.
    /// Without a canonical tokenizer the tail stays as it is.
    ///
    /// # Errors
    /// `Internal` when tokens are committed already or the grammar engine fails.
    pub fn start_after(&mut self, tail: &[TokenId]) -> Result<Vec<TokenId>, Failure> {
        if self.committed() > 0 {
            return Err(Failure::internal(
                "token healing comes before the first commit",
            ));
        }
        if !self.vocabulary().env().tokenize_is_canonical() {
            return Ok(tail.to_vec());
        }
        let (live, healed) = Live::begin(&self.grammar, tail)?;
        let specials = |tokens: &[TokenId]| {
            let special = |&&token: &&TokenId| !self.vocabulary().is_text(token);
            tokens.iter().filter(special).count()
        };
        if specials(&healed) != specials(tail) {
            // Text beside the seam spells a special token; leave the seam alone.
            self.tail.clear();
            self.live = None;
            return Ok(tail.to_vec());
        }
        self.live = Some(Box::new(live));
        self.tail = tail.to_vec();
        Ok(healed)
    }

    /// Whether, at this point, an end is all that can follow, including at the very start.
    pub(crate) fn nothing_follows(&mut self) -> Result<bool, Failure> {
        let accepting = self.accepting();
        let mask = self.mask()?;
        Ok(accepting && mask == *self.vocabulary().ends())
    }

    /// Takes tokens out of a mask that spell a character otherwise than in its only way.
    fn narrow(&mut self, mask: &mut SimpleVob) {
        let Some(spelling) = self.grammar.spelling().cloned() else {
            return;
        };
        if self.repeated() > 0 {
            // What is repeated from the context is nobody's spelling. Few tokens begin with it.
            for token in mask.to_list() {
                if self.spell(token).is_none() {
                    mask.disallow_token(token);
                }
            }
            return;
        }
        let at = self.spelled.last().copied().unwrap_or_default();
        let walk = &mut self.live().walk;
        spelling.narrow(mask, at, |tokens| fits(walk, tokens));
    }

    /// Where a token would leave the text with regard to escapes; `None` where it spells a character
    /// otherwise than in its only way.
    fn spell(&mut self, token: TokenId) -> Option<At> {
        let Some(spelling) = self.grammar.spelling().cloned() else {
            return Some(At::Plain);
        };
        let repeated = self.repeated();
        let bytes = self.vocabulary().bytes(token);
        let at = self.spelled.last().copied().unwrap_or_default();
        let after = at.after(&bytes[repeated.min(bytes.len())..])?;
        if !after.is_open() {
            return Some(after);
        }
        let walk = &mut self.live().walk;
        let has_end = spelling.has_end(after, token, |tokens| fits(walk, tokens));
        has_end.then_some(after)
    }

    /// How many of the next bytes repeat what healing chopped from the context.
    fn repeated(&self) -> usize {
        let prefix = self.live.as_ref().map_or(0, |live| live.prefix);
        if prefix == 0 {
            return 0;
        }
        let bytes = |&token: &TokenId| self.vocabulary().bytes(token).len();
        prefix.saturating_sub(self.tokens.iter().map(bytes).sum())
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.grammar.vocabulary()
    }

    fn live(&mut self) -> &mut Live {
        let grammar = &self.grammar;
        self.live.get_or_insert_with(|| {
            let lane = grammar.lane();
            let walk = llguidance::Matcher::new(Ok(lane.parser()));
            Box::new(Live {
                lane,
                walk,
                prefix: 0,
            })
        })
    }

    /// Walks again from the start over what is committed, after an error left the walk unusable.
    fn restart(&mut self) -> Result<(), Failure> {
        self.live = None;
        if !self.tail.is_empty() {
            self.live = Some(Box::new(Live::begin(&self.grammar, &self.tail)?.0));
        }
        let tokens = std::mem::take(&mut self.tokens);
        let walked = self.live().walk.consume_tokens(&tokens);
        self.tokens = tokens;
        walked.map_err(|error| Failure::internal(clean(&error.to_string())))
    }
}

impl Live {
    /// A walk that starts after `tail`, and the tokens to put in the tail's place.
    fn begin(grammar: &Grammar, tail: &[TokenId]) -> Result<(Self, Vec<TokenId>), Failure> {
        let lane = grammar.lane();
        let started = catch_unwind(AssertUnwindSafe(|| {
            let mut parser: TokenParser = lane.parser();
            let healed = parser.process_prompt(tail.to_vec());
            Ok((parser, healed))
        }));
        let (parser, healed) = started.map_err(|error| {
            lane.condemn();
            Failure::internal(clean(&error.to_string()))
        })?;
        let bytes = |tokens: &[TokenId]| grammar.vocabulary().trie().decode_raw(tokens).len();
        let prefix = bytes(tail).saturating_sub(bytes(&healed));
        let walk = llguidance::Matcher::new(Ok(parser));
        Ok((Self { lane, walk, prefix }, healed))
    }
}

/// Whether the grammar lets these tokens follow.
fn fits(walk: &mut llguidance::Matcher, tokens: &[TokenId]) -> bool {
    walk.validate_tokens(tokens)
        .is_ok_and(|count| count == tokens.len())
}

fn dead_end() -> Failure {
    Failure::unsatisfiable("no token of the vocabulary can continue the output")
}

fn refused(token: TokenId, reason: &str) -> Failure {
    Failure::internal(format!("token {token} cannot be committed: {reason}"))
}

fn failure(message: &str) -> Failure {
    if is_exhaustion(message) {
        Failure::params(format!(
            "the grammar is too costly at this point: {message}"
        ))
    } else {
        Failure::internal(message)
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher")
            .field("committed", &self.committed())
            .finish_non_exhaustive()
    }
}
