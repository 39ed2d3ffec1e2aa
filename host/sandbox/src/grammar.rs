//! One compiled grammar.

use crate::grammars::lock;
use crate::matcher::Matcher;
use crate::schema::{Checker, Enforcement, Invalid};
use crate::spelling::Spelling;
use crate::{Failure, Vocabulary};
use llguidance::TokenParser;
use llguidance::panic_utils::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Rough bytes of a compiled grammar beside its lexer, per production symbol and item.
const BASE_BYTES: usize = 16 << 10;

/// A lexer that grew past this is replaced by a fresh one as soon as no walk uses it.
const LEXER_BYTES: usize = 16 << 20;

/// A compiled grammar: immutable, shared. Every walk starts afresh.
///
/// What walks share is the lexer, whose states are found lazily and are the same for all of them. It is
/// behind a lock in llguidance, so that a grammar holds a few lexers and hands each new walk the one
/// with the fewest walks: walks on several threads rarely wait for each other, and a lexer that failed
/// takes nobody else with it.
pub struct Grammar {
    vocabulary: Vocabulary,
    pristine: Mutex<TokenParser>,
    lanes: Mutex<Vec<Arc<Lane>>>,
    max_lanes: usize,
    base_bytes: usize,
    only_empty: OnceLock<bool>,
    spelling: Option<Arc<Spelling>>,
    /// For grammars of JSON Schemas.
    schema: OnceLock<(Arc<Enforced>, Option<Checker>)>,
}

/// What enforces the assertions of a JSON Schema, by JSON pointers into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// Those that the mask enforces in full.
    pub masked: Vec<String>,
    /// Those that it does not: what is left to [`Grammar::validate`].
    pub unmasked: Vec<String>,
}

/// A lexer with a parser that has not begun.
pub(crate) struct Lane {
    fresh: Mutex<TokenParser>,
    bytes: AtomicUsize,
    broken: AtomicBool,
}

impl Lane {
    fn new(parser: TokenParser) -> Self {
        Self {
            bytes: AtomicUsize::new(lexer_bytes(&parser)),
            fresh: Mutex::new(parser),
            broken: AtomicBool::new(false),
        }
    }

    /// A parser at the start of the grammar.
    pub(crate) fn parser(&self) -> TokenParser {
        lock(&self.fresh).clone()
    }

    /// No new walk will use this lexer.
    pub(crate) fn condemn(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Whether a new walk may use it; also takes stock of a lexer that nobody uses.
    fn is_usable(self: &Arc<Self>) -> bool {
        if self.broken.load(Ordering::Relaxed) {
            return false;
        }
        if Arc::strong_count(self) > 1 {
            return true;
        }
        let bytes = lexer_bytes(&lock(&self.fresh));
        self.bytes.store(bytes, Ordering::Relaxed);
        bytes <= LEXER_BYTES
    }
}

/// Bytes of the lexer; a lexer whose lock a panic poisoned counts as too large to keep.
fn lexer_bytes(parser: &TokenParser) -> usize {
    let stats = catch_unwind(AssertUnwindSafe(|| Ok(parser.parser.lexer_stats())));
    stats.map_or(usize::MAX >> 8, |stats| stats.num_bytes)
}

impl Grammar {
    /// Tries the first step of the grammar, which also warms the lexer that all walks begin with.
    pub(crate) fn new(
        vocabulary: Vocabulary,
        parser: TokenParser,
        max_lanes: usize,
        spelling: Option<Arc<Spelling>>,
    ) -> Result<Arc<Self>, Failure> {
        let grammar = Arc::new(Self {
            base_bytes: BASE_BYTES + lexer_bytes(&parser),
            vocabulary,
            lanes: Mutex::new(vec![Arc::new(Lane::new(parser.clone()))]),
            pristine: Mutex::new(parser),
            max_lanes: max_lanes.max(1),
            only_empty: OnceLock::new(),
            spelling,
            schema: OnceLock::new(),
        });
        let mut probe = grammar.start();
        probe.mask()?;
        let _ = grammar.only_empty.set(probe.nothing_follows()?);
        // Until here both shared one lexer, which is warm now; later walks must not touch this one.
        let mut pristine = lock(&grammar.pristine);
        *pristine = pristine.deep_clone();
        drop(pristine);
        Ok(grammar)
    }

    /// A walk at the start of the grammar.
    pub fn start(self: &Arc<Self>) -> Matcher {
        Matcher::new(self)
    }

    /// The vocabulary that the grammar was compiled for.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// What enforces the JSON Schema that the grammar was made from; `None` for every other source.
    pub fn enforced(&self) -> Option<&Arc<Enforced>> {
        self.schema.get().map(|(enforced, _)| enforced)
    }

    /// JSON pointers of the schema's assertions that the mask does not enforce in full: what is left to
    /// [`Grammar::validate`]. Empty for every other kind of source.
    pub fn unmasked(&self) -> &[String] {
        self.enforced().map_or(&[], |found| &found.unmasked)
    }

    /// JSON pointers of the schema's assertions that the mask enforces in full.
    pub fn masked(&self) -> &[String] {
        self.enforced().map_or(&[], |found| &found.masked)
    }

    /// Validates a finished text against the schema as it was written. Nothing is left to validate, and
    /// every text passes, where [`Grammar::unmasked`] is empty.
    ///
    /// # Errors
    /// Why the text is not a value that the schema allows, and where it can be begun again.
    pub fn validate(&self, text: &[u8]) -> Result<(), Invalid> {
        let checker = self.schema.get().and_then(|(_, checker)| checker.as_ref());
        checker.map_or(Ok(()), |checker| checker.check(text))
    }

    /// Says once what enforces the schema that the grammar was made from.
    pub(crate) fn enforced_by(&self, enforcement: Enforcement) {
        let enforced = Enforced {
            masked: enforcement.masked,
            unmasked: enforcement.unmasked,
        };
        let _ = self.schema.set((Arc::new(enforced), enforcement.checker));
    }

    /// How characters of JSON strings are spelled; `None` for grammars of other texts.
    pub(crate) fn spelling(&self) -> Option<&Arc<Spelling>> {
        self.spelling.as_ref()
    }

    /// Bytes held, as last counted.
    pub(crate) fn bytes(&self) -> usize {
        let lanes = lock(&self.lanes);
        let lexers: usize = lanes
            .iter()
            .map(|lane| lane.bytes.load(Ordering::Relaxed))
            .sum();
        self.base_bytes + lexers
    }

    /// Whether the empty text is all that matches.
    pub(crate) fn only_empty(&self) -> bool {
        self.only_empty.get().copied().unwrap_or(false)
    }

    /// The lexer with the fewest walks, a new one when all are in use and there is room.
    pub(crate) fn lane(&self) -> Arc<Lane> {
        let mut lanes = lock(&self.lanes);
        lanes.retain(|lane| lane.is_usable());
        let best = lanes
            .iter()
            .min_by_key(|lane| Arc::strong_count(lane))
            .cloned();
        match best {
            // One count is the list's, one is ours.
            Some(lane) if Arc::strong_count(&lane) <= 2 || lanes.len() >= self.max_lanes => lane,
            _ => {
                let lane = Arc::new(Lane::new(lock(&self.pristine).deep_clone()));
                lanes.push(lane.clone());
                lane
            }
        }
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
