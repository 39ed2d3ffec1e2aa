//! One field under way.

use super::output::{Output, unspellable};
use formwork_sandbox::{Failure, Field, Matcher, SimpleVob, TokenId};
use std::time::Instant;

/// A field and the attempt at it that is being decoded.
pub(super) struct ActiveField {
    pub(super) plan: Field,
    /// The walk as the plan gave it, for further attempts.
    fresh: Matcher,
    /// Offset of the field's first byte in the output.
    pub(super) start: usize,
    /// Tokens before the field that no attempt changes.
    base: usize,
    /// Tokens from `base` to the field as they were before the first attempt.
    origin: Vec<TokenId>,
    /// Tokens that come before the attempt's own, a hint included.
    first: usize,
    /// Whether a hint stands before the attempt.
    hinted: bool,
    pub(super) begun: Instant,
    /// Counted from 1.
    pub(super) attempt: u32,
    /// Tokens of this attempt that were not sampled.
    pub(super) forced: usize,
    /// What the last mask allowed as part of the field.
    own: Option<SimpleVob>,
}

/// What a token meant to the field.
pub(super) enum Step {
    /// More is to come.
    More,
    /// The text is complete.
    Complete,
    /// `max_tokens` came first.
    Overrun,
}

impl ActiveField {
    /// Begins the first attempt. Template tokens before the field (those from `written` on) may be chopped
    /// so that the first sampled token can span the seam.
    pub(super) fn begin(
        plan: Field,
        output: &mut Output,
        written: usize,
    ) -> Result<(Self, Step), Failure> {
        let origin = output.tail(written);
        let mut field = Self {
            fresh: plan.matcher.fork(),
            start: output.bytes(),
            base: output.len() - origin.len(),
            origin,
            first: 0,
            hinted: false,
            begun: Instant::now(),
            attempt: 1,
            forced: 0,
            own: None,
            plan,
        };
        let step = field.heal(output)?;
        Ok((field, step))
    }

    /// Begins a further attempt, hotter, after a hint if there is one.
    pub(super) fn again(
        &mut self,
        output: &mut Output,
        hint: Option<&[u8]>,
    ) -> Result<Step, Failure> {
        self.restore(output);
        self.attempt += 1;
        self.plan.matcher = self.fresh.fork();
        self.hinted = hint.is_some();
        match hint {
            // Nothing of the hint may be chopped: it ends where the plugin says.
            Some(hint) => {
                output.write(hint)?;
                self.first = output.len();
                self.forced = 0;
                self.follow(output)
            }
            None => self.heal(output),
        }
    }

    /// Puts the output back to where it was before the field.
    pub(super) fn restore(&mut self, output: &mut Output) {
        output.replace(self.base, &self.origin);
    }

    fn heal(&mut self, output: &mut Output) -> Result<Step, Failure> {
        let mut whole = output.spell(&self.origin);
        whole.extend(self.fresh.fork().forced());
        let healed = self.plan.matcher.start_after(&self.origin)?;
        // The tokenizer leaves out what it has no token for; the grammar would be none the wiser.
        if !whole.starts_with(&output.spell(&healed)) {
            return Err(unspellable(&whole));
        }
        output.replace(self.base, &healed);
        self.first = self.base + healed.len().min(self.origin.len());
        self.forced = output.len() - self.first;
        self.follow(output)
    }

    /// Appends what the grammar leaves no choice about.
    fn follow(&mut self, output: &mut Output) -> Result<Step, Failure> {
        self.own = None;
        for token in self.plan.matcher.forced_tokens() {
            self.plan.matcher.commit(token)?;
            output.push(token);
            self.forced += 1;
        }
        if self.plan.matcher.stopped() {
            return Ok(Step::Complete);
        }
        if self.tokens(output) >= self.plan.max_tokens as usize {
            let complete = self.plan.matcher.accepting();
            return Ok(if complete {
                Step::Complete
            } else {
                Step::Overrun
            });
        }
        Ok(Step::More)
    }

    /// Takes in a sampled token, the last one of `output`.
    pub(super) fn commit(&mut self, token: TokenId, output: &mut Output) -> Result<Step, Failure> {
        let own = self.own.take().is_none_or(|own| own.is_allowed(token));
        // An end token, or the first token of the text that follows, only says: the field ends here.
        if !own || self.plan.matcher.grammar().vocabulary().is_end(token) {
            output.truncate(output.len() - 1);
            return Ok(Step::Complete);
        }
        self.plan.matcher.commit(token)?;
        self.follow(output)
    }

    /// The tokens that may come next: the field's own and, where it may end, those that begin what follows
    /// it. A token of both kinds belongs to the field.
    pub(super) fn mask(
        &mut self,
        openers: impl FnOnce() -> Result<Option<SimpleVob>, Failure>,
    ) -> Result<SimpleVob, Failure> {
        let mut mask = self.plan.matcher.mask()?;
        self.own = Some(mask.clone());
        if self.plan.matcher.accepting()
            && let Some(openers) = openers()?
        {
            mask.or(&openers);
        }
        Ok(mask)
    }

    /// The text of this attempt.
    pub(super) fn value(&self, output: &Output) -> Vec<u8> {
        if self.hinted {
            output.text_from(output.offset_of(self.first))
        } else {
            output.text_from(self.start)
        }
    }

    /// Tokens of this attempt so far.
    pub(super) fn tokens(&self, output: &Output) -> usize {
        output.len().saturating_sub(self.first)
    }

    /// Whether this attempt's tokens stand where the accepted ones belong.
    pub(super) fn in_place(&self) -> bool {
        !self.hinted
    }

    /// Whether the value may still be taken back: then nobody sees it before it is accepted.
    pub(super) fn held(&self) -> bool {
        use formwork_sandbox::Fallback;
        self.hinted
            || self.plan.check
            || self.plan.retry.attempts > 1
            || matches!(self.plan.retry.exhausted, Fallback::Write(_))
    }

    /// Temperature of this attempt, given the request's.
    pub(super) fn temperature(&self, request: f32) -> f32 {
        self.plan.temperature.unwrap_or(request) + self.plan.retry.heat * (self.attempt - 1) as f32
    }
}
