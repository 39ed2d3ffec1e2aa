//! What the host does for a guest: the imports of the world.

use crate::bindings::formwork::plugin::{grammars, log, masks, types, vocabulary};
use crate::bindings::{GrammarHandle, MaskHandle};
use crate::failure::truncate;
use crate::limits::{Compiling, Deadline};
use crate::matcher::Matcher;
use crate::plan::{LogLevel, LogLine};
use crate::{Failure, FailureKind, Grammars, SandboxLimits, Source, mask};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toktrie::{SimpleVob, TokenId};
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Error, ResourceLimiter, Result};

/// The host's side of one session.
pub(crate) struct Guest {
    pub(crate) grammars: Arc<Grammars>,
    pub(crate) table: ResourceTable,
    pub(crate) memory: MemoryLimiter,
    pub(crate) log: Log,
    /// When the call under way is late.
    pub(crate) deadline: Instant,
    /// How much longer the call may wait for grammars without losing time of its own.
    pub(crate) patience: Duration,
    /// What it waited so, as far as the epoch's deadline does not know of it yet.
    pub(crate) waited: Duration,
    /// Why an import without an error in its type could not do its work; the guest is trapped.
    pub(crate) failure: Option<Failure>,
}

impl Guest {
    pub(crate) fn new(grammars: Arc<Grammars>, limits: &SandboxLimits) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        Self {
            grammars,
            table,
            memory: MemoryLimiter {
                memory_bytes: limits.memory_bytes,
                table_elements: limits.table_elements,
                denied: None,
            },
            log: Log {
                lines: Vec::new(),
                call: 0,
                lines_left: limits.log_lines,
                bytes_left: limits.log_bytes,
            },
            deadline: Instant::now(),
            patience: Duration::ZERO,
            waited: Duration::ZERO,
            failure: None,
        }
    }

    fn vocabulary(&self) -> &crate::Vocabulary {
        self.grammars.vocabulary()
    }

    /// Sets the clock for a call that begins now.
    pub(crate) fn begin(&mut self, deadline: Deadline) {
        self.deadline = Instant::now() + deadline.limit;
        self.waited = Duration::ZERO;
        self.patience = match deadline.compiling {
            Compiling::Apart => Duration::from_millis(self.grammars.limits().compile_ms),
            Compiling::Within => Duration::ZERO,
        };
    }

    /// What the epoch's deadline is to be moved by; nothing when the call is late indeed.
    pub(crate) fn extension(&mut self) -> Option<Duration> {
        let waited = std::mem::take(&mut self.waited);
        (!waited.is_zero()).then_some(waited)
    }

    fn push<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>> {
        let limit = self.table.max_capacity();
        self.table.push(entry).map_err(|_| {
            Error::msg(format!(
                "the session holds more masks, grammars and matchers than the limit (handles) of {limit}"
            ))
        })
    }

    fn new_mask(&mut self, mask: SimpleVob) -> Result<Resource<MaskHandle>> {
        self.push(MaskHandle(Arc::new(mask)))
    }

    /// Changes a mask by another one; handles of equal masks stay independent.
    fn combine(
        &mut self,
        target: &Resource<MaskHandle>,
        other: &Resource<MaskHandle>,
        change: impl FnOnce(&mut SimpleVob, &SimpleVob),
    ) -> Result<()> {
        let other = self.table.get(other)?.0.clone();
        let target = &mut self.table.get_mut(target)?.0;
        change(Arc::make_mut(target), &other);
        Ok(())
    }

    /// Keeps the failure for the host and traps the guest, whose contract has no error here.
    fn give_up<T>(&mut self, result: Result<T, Failure>) -> Result<T> {
        result.map_err(|failure| {
            let error = Error::msg(failure.to_string());
            self.failure = Some(failure);
            error
        })
    }
}

/// Says no to growth past the limits, and remembers it.
pub(crate) struct MemoryLimiter {
    memory_bytes: usize,
    table_elements: usize,
    /// The bound that was hit, by name, and its value.
    pub(crate) denied: Option<(&'static str, usize)>,
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let allowed = desired <= self.memory_bytes;
        if !allowed {
            self.denied = Some(("memory_bytes", self.memory_bytes));
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let allowed = desired <= self.table_elements;
        if !allowed {
            self.denied = Some(("table_elements", self.table_elements));
        }
        Ok(allowed)
    }
}

/// The lines that a session wrote and nobody has taken yet.
pub(crate) struct Log {
    pub(crate) lines: Vec<LogLine>,
    pub(crate) call: u64,
    lines_left: usize,
    bytes_left: usize,
}

impl Log {
    fn write(&mut self, level: LogLevel, mut message: String) {
        if self.lines_left == 0 {
            return;
        }
        self.lines_left -= 1;
        let full = self.lines_left == 0 || message.len() > self.bytes_left;
        truncate(&mut message, self.bytes_left);
        self.bytes_left -= message.len();
        let call = self.call;
        self.lines.push(LogLine {
            level,
            message,
            call,
        });
        if full {
            self.lines_left = 0;
            self.lines.push(LogLine {
                level: LogLevel::Warn,
                message: "the log is full (log_lines, log_bytes): what follows is dropped".into(),
                call,
            });
        }
    }
}

impl types::Host for Guest {}

impl vocabulary::Host for Guest {
    fn describe(&mut self) -> Result<vocabulary::Info> {
        let vocabulary = self.vocabulary();
        Ok(vocabulary::Info {
            model: vocabulary.model().to_owned(),
            size: vocabulary.size(),
            end: vocabulary.end().to_vec(),
            digest: vocabulary.digest().to_owned(),
        })
    }

    fn bytes(&mut self, token: TokenId) -> Result<Vec<u8>> {
        Ok(self.vocabulary().bytes(token).to_vec())
    }

    fn encode(&mut self, text: Vec<u8>) -> Result<Vec<TokenId>> {
        Ok(self.vocabulary().tokenize(&text))
    }

    fn trie(&mut self) -> Result<Vec<u8>> {
        Ok(self.vocabulary().flat_trie().to_vec())
    }
}

impl masks::Host for Guest {}

impl masks::HostMask for Guest {
    fn everything(&mut self) -> Result<Resource<MaskHandle>> {
        let mask = mask::everything(self.vocabulary());
        self.new_mask(mask)
    }

    fn nothing(&mut self) -> Result<Resource<MaskHandle>> {
        let mask = SimpleVob::alloc(self.vocabulary().size() as usize);
        self.new_mask(mask)
    }

    fn only(&mut self, tokens: Vec<TokenId>) -> Result<Resource<MaskHandle>> {
        let mask = mask::only(self.vocabulary(), &tokens);
        self.new_mask(mask)
    }

    fn from_bits(&mut self, words: Vec<u32>) -> Result<Result<Resource<MaskHandle>, String>> {
        match mask::from_bits(self.vocabulary(), &words) {
            Ok(mask) => self.new_mask(mask).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn along(&mut self, text: Vec<u8>) -> Result<Resource<MaskHandle>> {
        let mask = mask::along(self.vocabulary(), &text);
        self.new_mask(mask)
    }

    fn keep(&mut self, mask: Resource<MaskHandle>, other: Resource<MaskHandle>) -> Result<()> {
        self.combine(&mask, &other, SimpleVob::and)
    }

    fn add(&mut self, mask: Resource<MaskHandle>, other: Resource<MaskHandle>) -> Result<()> {
        self.combine(&mask, &other, SimpleVob::or)
    }

    fn remove(&mut self, mask: Resource<MaskHandle>, other: Resource<MaskHandle>) -> Result<()> {
        self.combine(&mask, &other, SimpleVob::sub)
    }

    fn allows(&mut self, mask: Resource<MaskHandle>, token: TokenId) -> Result<bool> {
        let mask = &self.table.get(&mask)?.0;
        Ok((token as usize) < mask.len() && mask.is_allowed(token))
    }

    fn count(&mut self, mask: Resource<MaskHandle>) -> Result<u32> {
        Ok(self.table.get(&mask)?.0.num_set() as u32)
    }

    fn drop(&mut self, mask: Resource<MaskHandle>) -> Result<()> {
        self.table.delete(mask)?;
        Ok(())
    }
}

impl grammars::Host for Guest {}

impl grammars::HostGrammar for Guest {
    fn compile(
        &mut self,
        source: grammars::Source,
    ) -> Result<Result<Resource<GrammarHandle>, types::Failure>> {
        let source = match source {
            grammars::Source::JsonSchema(schema) => Source::JsonSchema(schema.into()),
            grammars::Source::Regex(text) => Source::Regex(text),
            grammars::Source::Lark(text) => Source::Lark(text),
            grammars::Source::Choice(options) => Source::Choice(options),
        };
        let begun = Instant::now();
        let own = self.deadline.saturating_duration_since(begun);
        let compiled = self
            .grammars
            .compile_within(&source, self.patience.max(own));
        let waited = begun.elapsed().min(self.patience);
        self.patience -= waited;
        self.deadline += waited;
        self.waited += waited;
        match compiled {
            Ok(grammar) => self.push(GrammarHandle(grammar)).map(Ok),
            Err(failure) => Ok(Err(failure.into())),
        }
    }

    fn start(&mut self, grammar: Resource<GrammarHandle>) -> Result<Resource<Matcher>> {
        let matcher = self.table.get(&grammar)?.0.start();
        self.push(matcher)
    }

    fn unmasked(&mut self, grammar: Resource<GrammarHandle>) -> Result<Vec<String>> {
        Ok(self.table.get(&grammar)?.0.unmasked().to_vec())
    }

    fn validate(
        &mut self,
        grammar: Resource<GrammarHandle>,
        text: Vec<u8>,
    ) -> Result<Result<(), grammars::Invalid>> {
        let checked = self.table.get(&grammar)?.0.validate(&text);
        Ok(checked.map_err(Into::into))
    }

    fn drop(&mut self, grammar: Resource<GrammarHandle>) -> Result<()> {
        self.table.delete(grammar)?;
        Ok(())
    }
}

impl grammars::HostMatcher for Guest {
    fn mask(&mut self, matcher: Resource<Matcher>) -> Result<Resource<MaskHandle>> {
        let mask = self.table.get_mut(&matcher)?.mask();
        let mask = self.give_up(mask)?;
        self.new_mask(mask)
    }

    fn commit(
        &mut self,
        matcher: Resource<Matcher>,
        token: TokenId,
    ) -> Result<Result<(), types::Failure>> {
        let done = self.table.get_mut(&matcher)?.commit(token);
        Ok(done.map_err(Into::into))
    }

    fn rollback(
        &mut self,
        matcher: Resource<Matcher>,
        tokens: u32,
    ) -> Result<Result<(), types::Failure>> {
        let done = self.table.get_mut(&matcher)?.rollback(tokens as usize);
        Ok(done.map_err(Into::into))
    }

    fn forced(&mut self, matcher: Resource<Matcher>) -> Result<Vec<u8>> {
        Ok(self.table.get_mut(&matcher)?.forced())
    }

    fn accepting(&mut self, matcher: Resource<Matcher>) -> Result<bool> {
        Ok(self.table.get_mut(&matcher)?.accepting())
    }

    fn clone(&mut self, matcher: Resource<Matcher>) -> Result<Resource<Matcher>> {
        let fork = self.table.get(&matcher)?.fork();
        self.push(fork)
    }

    fn drop(&mut self, matcher: Resource<Matcher>) -> Result<()> {
        self.table.delete(matcher)?;
        Ok(())
    }
}

impl log::Host for Guest {
    fn write(&mut self, level: log::Level, message: String) -> Result<()> {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.log.write(level, message);
        Ok(())
    }
}

impl From<Failure> for types::Failure {
    fn from(failure: Failure) -> Self {
        Self {
            kind: match failure.kind {
                FailureKind::InvalidParams => types::FailureKind::InvalidParams,
                FailureKind::Unsatisfiable => types::FailureKind::Unsatisfiable,
                FailureKind::Exhausted => types::FailureKind::Exhausted,
                FailureKind::Internal => types::FailureKind::Internal,
            },
            message: failure.message,
        }
    }
}

impl From<types::Failure> for Failure {
    fn from(failure: types::Failure) -> Self {
        let kind = match failure.kind {
            types::FailureKind::InvalidParams => FailureKind::InvalidParams,
            types::FailureKind::Unsatisfiable => FailureKind::Unsatisfiable,
            types::FailureKind::Exhausted => FailureKind::Exhausted,
            types::FailureKind::Internal => FailureKind::Internal,
        };
        Self::new(kind, failure.message)
    }
}
