//! Compiled grammars: shared, cached, bounded.

use crate::cache::{Cache, CacheStats, Flight, Slot};
use crate::grammar::Grammar;
use crate::parsers::Parsers;
use crate::probe;
use crate::schema::{self, Complaint, Documents, Refused};
use crate::source::Prepared;
use crate::spelling::Spelling;
use crate::{Failure, FailureKind, Source, Vocabulary};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Stack of a compiling thread. Address space, not memory: pages are taken as the parser recurses.
const COMPILE_STACK_BYTES: usize = 256 << 20;

/// Part of the work allowed for one mask that a pattern by itself may take.
const CHEAP_PART: u64 = 4;

/// Bounds on what a grammar may cost. Each error names the bound that it hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarLimits {
    /// Bytes of source text.
    pub source_bytes: usize,
    /// Nesting of brackets and groups; the compilers behind it recurse.
    pub depth: usize,
    /// Rules and terminals of a Lark grammar; chains of them are compiled recursively.
    pub rules: usize,
    /// Symbols in the productions of a compiled grammar.
    pub symbols: usize,
    /// Work on the lexer at compile time, in llguidance's units (about 50,000 per ms).
    pub compile_fuel: u64,
    /// Work on the lexer for one mask, in llguidance's units (about 14,000 per ms).
    pub mask_fuel: u64,
    /// Items of the Earley parser for one mask (about 20,000 per ms).
    pub mask_items: usize,
    /// States of one lexer, 1 to 2 kB each.
    pub lexer_states: usize,
    /// How long a request waits for its grammars.
    pub compile_ms: u64,
    /// Bytes of compiled grammars kept for later requests, refusals included.
    pub cache_bytes: usize,
    /// Lexers per grammar: so many walks of one grammar compute masks at the same time.
    pub lexers: usize,
}

impl Default for GrammarLimits {
    fn default() -> Self {
        Self {
            source_bytes: 1 << 20,
            depth: 100,
            rules: 2_000,
            symbols: 500_000,
            compile_fuel: 1_000_000,
            mask_fuel: 200_000,
            mask_items: 50_000,
            lexer_states: 50_000,
            compile_ms: 10_000,
            cache_bytes: 256 << 20,
            lexers: 8,
        }
    }
}

impl GrammarLimits {
    fn parser_limits(&self) -> ParserLimits {
        ParserLimits {
            initial_lexer_fuel: self.compile_fuel,
            step_lexer_fuel: self.mask_fuel,
            step_max_items: self.mask_items,
            max_lexer_states: self.lexer_states,
            max_grammar_size: self.symbols,
            verbose_errors: false,
            ..ParserLimits::default()
        }
    }
}

/// The grammar engine could not be set up for this vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the grammar engine cannot serve this vocabulary: {0}")]
pub struct GrammarsError(String);

/// Compiles grammars for one vocabulary. Equal sources share one compilation, also while it runs.
pub struct Grammars {
    shared: Arc<Shared>,
}

struct Shared {
    vocabulary: Vocabulary,
    parsers: Parsers,
    limits: GrammarLimits,
    documents: Documents,
    spelling: OnceLock<Arc<Spelling>>,
    cache: Mutex<Cache>,
}

impl Grammars {
    /// A compiler for `vocabulary` with an empty cache.
    ///
    /// # Errors
    /// When llguidance cannot index the vocabulary.
    pub fn new(
        vocabulary: Arc<Vocabulary>,
        limits: GrammarLimits,
    ) -> Result<Arc<Self>, GrammarsError> {
        Self::with_documents(vocabulary, limits, BTreeMap::new())
    }

    /// The same with documents, by absolute URI, that JSON Schemas may refer to. No other document is
    /// ever fetched.
    ///
    /// # Errors
    /// When llguidance cannot index the vocabulary.
    pub fn with_documents(
        vocabulary: Arc<Vocabulary>,
        limits: GrammarLimits,
        documents: BTreeMap<String, serde_json::Value>,
    ) -> Result<Arc<Self>, GrammarsError> {
        let parsers = Parsers::new(vocabulary.env()).map_err(GrammarsError)?;
        Ok(Arc::new(Self {
            shared: Arc::new(Shared {
                vocabulary: Vocabulary::clone(&vocabulary),
                parsers,
                cache: Mutex::new(Cache::new(limits.cache_bytes)),
                documents: Arc::new(documents),
                spelling: OnceLock::new(),
                limits,
            }),
        }))
    }

    /// The vocabulary that grammars are compiled for.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.shared.vocabulary
    }

    /// The bounds in force.
    pub fn limits(&self) -> &GrammarLimits {
        &self.shared.limits
    }

    /// What the cache holds and has done so far.
    pub fn stats(&self) -> CacheStats {
        lock(&self.shared.cache).stats()
    }

    /// The compiled grammar, from the cache if an equal source was compiled before. Blocks while it is
    /// compiled, by this caller or another.
    ///
    /// # Errors
    /// `InvalidParams` for a source that is wrong or too costly, `Unsatisfiable` for one that no text
    /// matches. Refusals are cached, save those for want of time or memory.
    pub fn compile(&self, source: &Source) -> Result<Arc<Grammar>, Failure> {
        let patience = Duration::from_millis(self.shared.limits.compile_ms);
        self.compile_within(source, patience)
    }

    /// The same for a caller that has less time than the limit.
    pub(crate) fn compile_within(
        &self,
        source: &Source,
        patience: Duration,
    ) -> Result<Arc<Grammar>, Failure> {
        let key = key(source);
        let slot = lock(&self.shared.cache).slot(key);
        let flight = match slot {
            Slot::Ready(result) => return result,
            Slot::Pending(flight) => flight,
            Slot::Claimed(flight) => {
                self.launch(key, source.clone(), flight.clone());
                flight
            }
        };
        let limit = Duration::from_millis(self.shared.limits.compile_ms);
        flight.wait(patience.min(limit)).unwrap_or_else(|| {
            Err(Failure::params(if patience < limit {
                format!(
                    "the {} is still compiling at the call's deadline",
                    source.kind()
                )
            } else {
                format!(
                    "the {} takes longer to compile than the limit (compile_ms) of {limit:?}",
                    source.kind()
                )
            }))
        })
    }

    /// Compiles on a thread of its own: its stack is deep, and its caller can give up waiting.
    fn launch(&self, key: [u8; 32], source: Source, flight: Arc<Flight>) {
        let (shared, landed) = (self.shared.clone(), flight.clone());
        let thread = std::thread::Builder::new()
            .name("grammar-compile".into())
            .stack_size(COMPILE_STACK_BYTES)
            .spawn(move || {
                let built = catch_unwind(AssertUnwindSafe(|| build(&shared, &source)));
                let built = built.unwrap_or_else(|_| {
                    Err(Refusal::passing(Failure::internal(
                        "the grammar engine panicked on this grammar",
                    )))
                });
                lock(&shared.cache).settle(key, &source, &built);
                landed.land(built.map_err(|refusal| refusal.failure));
            });
        if let Err(error) = thread {
            let failure = Failure::internal(format!("no thread to compile a grammar: {error}"));
            lock(&self.shared.cache).forget(key);
            flight.land(Err(failure));
        }
    }
}

/// A failed compilation.
pub(crate) struct Refusal {
    pub(crate) failure: Failure,
    /// Whether the source itself is at fault, so that the refusal holds for ever.
    pub(crate) lasting: bool,
}

impl Refusal {
    fn lasting(failure: Failure) -> Self {
        let lasting = true;
        Self { failure, lasting }
    }

    fn passing(failure: Failure) -> Self {
        let lasting = false;
        Self { failure, lasting }
    }
}

fn build(shared: &Shared, source: &Source) -> Result<Arc<Grammar>, Refusal> {
    let grammar = match source.prepare(&shared.limits).map_err(Refusal::lasting)? {
        Prepared::Grammar(grammar) => grammar,
        Prepared::Schema(schema) => return build_schema(shared, source, &schema),
    };
    let parser = create(shared, grammar).map_err(|message| explain(source, &message))?;
    Grammar::new(
        shared.vocabulary.clone(),
        parser,
        shared.limits.lexers,
        None,
    )
    .map_err(judge)
}

/// Compiles a schema, or the widest schema around it that the grammar engine takes.
fn build_schema(
    shared: &Shared,
    source: &Source,
    schema: &schema::Prepared,
) -> Result<Arc<Grammar>, Refusal> {
    let spelling = || Arc::new(Spelling::new(&shared.vocabulary));
    let spelling = shared.spelling.get_or_init(spelling);
    let attempt = |lowered| {
        let complain = |message: String| {
            if message.contains("Unsatisfiable schema") {
                Complaint::Unsatisfiable(message)
            } else {
                Complaint::Refused(message)
            }
        };
        let grammar = TopLevelGrammar::from_json_schema(lowered);
        let parser = create(shared, grammar).map_err(complain)?;
        let limits = &shared.limits;
        let spelling = Some(spelling.clone());
        Grammar::new(shared.vocabulary.clone(), parser, limits.lexers, spelling).map_err(
            |failure| match failure.kind {
                FailureKind::Unsatisfiable => Complaint::Unsatisfiable(failure.message),
                _ => Complaint::Refused(failure.message),
            },
        )
    };
    let is_cheap = |part| {
        let limits = ParserLimits {
            step_lexer_fuel: shared.limits.mask_fuel / CHEAP_PART,
            ..shared.limits.parser_limits()
        };
        probe::is_cheap(&shared.parsers, &shared.vocabulary, limits, part)
    };
    match schema::build(schema, &shared.documents, attempt, is_cheap) {
        Ok((enforcement, grammar)) => {
            grammar.enforced_by(enforcement);
            Ok(grammar)
        }
        Err(Refused::Failure(failure)) => Err(Refusal::lasting(failure)),
        Err(Refused::Complaint(Complaint::Unsatisfiable(message))) => {
            Err(unsatisfiable(source, &message))
        }
        Err(Refused::Complaint(Complaint::Refused(message))) => Err(explain(source, &message)),
    }
}

fn judge(failure: Failure) -> Refusal {
    if is_exhaustion(&failure.message) {
        Refusal::passing(failure)
    } else {
        Refusal::lasting(failure)
    }
}

fn create(shared: &Shared, grammar: TopLevelGrammar) -> Result<llguidance::TokenParser, String> {
    let made = shared
        .parsers
        .create(grammar, shared.limits.parser_limits());
    made.map_err(|error| clean(&error))
}

/// Turns llguidance's message into a refusal with its kind and, where known, its place.
fn explain(source: &Source, message: &str) -> Refusal {
    if message.starts_with("panic") {
        let text = format!(
            "the grammar engine gave up on the {}: {message}",
            source.kind()
        );
        return Refusal::passing(Failure::internal(text));
    }
    if message.contains("Unsatisfiable schema") {
        return unsatisfiable(source, message);
    }
    let failure = Failure::params(format!("the {} does not compile: {message}", source.kind()));
    if is_exhaustion(message) {
        Refusal::passing(failure)
    } else {
        Refusal::lasting(failure)
    }
}

fn unsatisfiable(source: &Source, message: &str) -> Refusal {
    let place = source.unsatisfiable_at();
    let place = place.map_or(String::new(), |pointer| format!(" at {pointer}"));
    let text = format!("no value satisfies the {}{place}: {message}", source.kind());
    Refusal::lasting(Failure::unsatisfiable(text))
}

/// Whether llguidance ran into one of its limits.
pub(crate) fn is_exhaustion(message: &str) -> bool {
    [
        "too big",
        "too many",
        "too complex",
        "TooComplex",
        "too large",
        "fuel",
        "max is",
        "limit",
    ]
    .iter()
    .any(|mark| message.contains(mark))
}

/// The message without backtrace and markers meant for llguidance's developers.
pub(crate) fn clean(message: &str) -> String {
    let end = ["\n<backtrace>", "\n<non-verbose/>", "\n<state>"]
        .iter()
        .filter_map(|mark| message.find(mark))
        .min();
    message[..end.unwrap_or(message.len())].trim().to_owned()
}

fn key(source: &Source) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    field(source.kind().as_bytes());
    match source {
        Source::JsonSchema(schema) => schema.fields(field),
        Source::Regex(text) | Source::Lark(text) => field(text.as_bytes()),
        Source::Choice(options) => options.iter().for_each(|text| field(text.as_bytes())),
    }
    hash.finalize().into()
}

/// Locks; what a panicking holder left behind is plain data and whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
