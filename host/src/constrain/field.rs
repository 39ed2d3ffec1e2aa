//! One field under way.

use super::output::{Output, unspellable};
use formwork_sandbox::{Failure, Field, Matcher, SimpleVob, TokenId, along};
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
    /// Of each token of this attempt, whether the grammar left no choice about it.
    forced: Vec<bool>,
    /// Tokens of the output before the first that the matcher holds.
    unwalked: usize,
    /// What is kept of the attempt before and not spelled yet: less than a token, which the next one completes.
    kept: Vec<u8>,
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
            forced: Vec::new(),
            unwalked: 0,
            kept: Vec::new(),
            own: None,
            plan,
        };
        let step = field.heal(&[], output)?;
        Ok((field, step))
    }

    /// Begins a further attempt, hotter, after a hint if there is one. The first `from` bytes of the value stay.
    pub(super) fn again(
        &mut self,
        output: &mut Output,
        hint: Option<&[u8]>,
        from: usize,
    ) -> Result<Step, Failure> {
        let mut kept = self.value(output);
        kept.truncate(from);
        self.attempt += 1;
        self.plan.matcher = self.fresh.fork();
        match hint {
            Some(hint) => self.behind(hint, &kept, output),
            None => self.heal(&kept, output),
        }
    }

    /// Puts the output back to where it was before the field.
    pub(super) fn restore(&mut self, output: &mut Output) {
        output.replace(self.base, &self.origin);
    }

    /// Begins an attempt where the field begins, with what is kept of the one before: its tokens stay where they
    /// are, and the matcher walks over them again.
    fn heal(&mut self, kept: &[u8], output: &mut Output) -> Result<Step, Failure> {
        let mut behind_hint = Vec::new();
        if self.hinted {
            let end = output.tokens_before(self.value_start(output) + kept.len());
            behind_hint = output.tokens(self.first..end).to_vec();
            self.restore(output);
            self.hinted = false;
        }
        let mut text = output.spell(&self.origin);
        let mut whole = text.clone();
        whole.extend(self.fresh.fork().forced());
        let healed = self.plan.matcher.start_after(&self.origin)?;
        // The tokenizer leaves out what it has no token for; the grammar would be none the wiser.
        if !whole.starts_with(&output.spell(&healed)) {
            return Err(unspellable(&whole));
        }
        text.extend_from_slice(kept);
        self.first = self.base + healed.len().min(self.origin.len());
        self.unwalked = self.base + healed.len();
        let before = output.offset_of(self.base);
        let end = output.tokens_before(before + text.len());
        let stays = !kept.is_empty() && output.tokens(self.base..end).starts_with(&healed);
        if stays {
            output.truncate(end);
            for &token in output.tokens(self.unwalked..end) {
                self.plan.matcher.commit(token)?;
            }
            self.forced.truncate(end - self.first);
        } else {
            output.replace(self.base, &healed);
            self.forced = vec![true; output.len() - self.first];
            // Unless the seam is in the way, what stood behind a hint may stand here.
            if output.bytes() == self.start {
                for token in behind_hint {
                    self.plan.matcher.commit(token)?;
                    output.push(token);
                    self.forced.push(false);
                }
            }
        }
        self.kept = text.split_off(text.len().min(output.bytes() - before));
        self.follow(output)
    }

    /// Begins an attempt behind a hint, with what is kept of the one before, spelled as it was.
    fn behind(&mut self, hint: &[u8], kept: &[u8], output: &mut Output) -> Result<Step, Failure> {
        let start = self.value_start(output);
        let (mut next, end) = (
            output.tokens_before(start),
            output.tokens_before(start + kept.len()),
        );
        let (mut tokens, mut forced) = (Vec::new(), Vec::new());
        if next < end && output.offset_of(next) < start {
            // It spans the seam before the field, which is another one now.
            let lead = &kept[..output.offset_of(next + 1) - start];
            tokens = self.plan.matcher.grammar().vocabulary().tokenize(lead);
            if output.spell(&tokens) != lead {
                return Err(unspellable(lead));
            }
            forced.resize(tokens.len(), false);
            next += 1;
        }
        if next < end {
            tokens.extend_from_slice(output.tokens(next..end));
            let own = self.forced.iter().skip(next - self.first);
            forced.extend(own.take(end - next));
        }
        forced.resize(tokens.len(), false);
        self.restore(output);
        // Nothing of the hint may be chopped: it ends where the plugin says.
        output.write(hint)?;
        self.hinted = true;
        self.first = output.len();
        self.unwalked = self.first;
        self.forced = forced;
        self.kept = kept[output.spell(&tokens).len()..].to_vec();
        for token in tokens {
            self.plan.matcher.commit(token)?;
            output.push(token);
        }
        self.follow(output)
    }

    /// Appends what the grammar leaves no choice about.
    fn follow(&mut self, output: &mut Output) -> Result<Step, Failure> {
        debug_assert_eq!(
            self.unwalked + self.plan.matcher.committed(),
            output.len(),
            "the matcher holds the field's tokens"
        );
        self.own = None;
        for token in self.plan.matcher.forced_tokens() {
            self.plan.matcher.commit(token)?;
            output.push(token);
            self.forced.push(true);
            self.spell_kept(token);
        }
        if self.plan.matcher.stopped() {
            return Ok(Step::Complete);
        }
        if self.tokens(output) >= self.plan.max_tokens as usize {
            // What is kept of the attempt before belongs to this one, although it is not spelled yet.
            let complete = self.kept.is_empty() && self.plan.matcher.accepting();
            return Ok(if complete {
                Step::Complete
            } else {
                Step::Overrun
            });
        }
        Ok(Step::More)
    }

    /// Notes that `token` stands now.
    fn spell_kept(&mut self, token: TokenId) {
        let vocabulary = self.plan.matcher.grammar().vocabulary();
        let spelled = vocabulary.bytes(token).len().min(self.kept.len());
        self.kept.drain(..spelled);
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
        self.forced.push(false);
        self.spell_kept(token);
        self.follow(output)
    }

    /// The tokens that may come next: the field's own and, where it may end, those that begin what follows
    /// it. A token of both kinds belongs to the field. What is kept of the attempt before has to come first.
    pub(super) fn mask(
        &mut self,
        openers: impl FnOnce() -> Result<Option<SimpleVob>, Failure>,
    ) -> Result<SimpleVob, Failure> {
        let mut mask = self.plan.matcher.mask()?;
        if !self.kept.is_empty() {
            let vocabulary = self.plan.matcher.grammar().vocabulary();
            mask.and(&along(vocabulary, &self.kept));
            if mask.is_zero() {
                // The mask wants the canonical token of a longer text; this one is spelled by itself then.
                let token = vocabulary.tokenize(&self.kept).first().copied();
                mask.allow_token(token.ok_or_else(|| unspellable(&self.kept))?);
            }
            self.own = Some(mask.clone());
            return Ok(mask);
        }
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
        output.text_from(self.value_start(output))
    }

    /// Offset of the attempt's first byte in the output.
    fn value_start(&self, output: &Output) -> usize {
        match self.hinted {
            true => output.offset_of(self.first),
            false => self.start,
        }
    }

    /// Tokens before the field.
    pub(super) fn before(&self) -> usize {
        self.base + self.origin.len()
    }

    /// Tokens of this attempt so far.
    pub(super) fn tokens(&self, output: &Output) -> usize {
        output.len().saturating_sub(self.first)
    }

    /// Of these, tokens that the grammar left no choice about.
    pub(super) fn forced(&self, output: &Output) -> usize {
        let own = self.forced.iter().take(self.tokens(output));
        own.filter(|&&forced| forced).count()
    }

    /// Whether all that is kept of the attempt before is spelled.
    pub(super) fn is_whole(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether this attempt's tokens stand where the accepted ones belong. Not where a limit came before the
    /// template's end, chopped for the seam, was spelled again.
    pub(super) fn in_place(&self, output: &Output) -> bool {
        !self.hinted && output.bytes() >= self.start
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
