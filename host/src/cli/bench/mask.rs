//! `formwork bench mask`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use formwork_model::PackedCache;
use formwork_sandbox::{
    Action, FailureKind, Grammar, GrammarLimits, Grammars, Matcher, Observed, OpenRequest, Plugin,
    Sandbox, SandboxLimits, Session, Source, TokenId, Value as FieldValue, Verdict, Vocabulary,
};
use serde_json::json;

use super::case::{Case, read};
use super::figures::{Clock, MaskTimes};
use super::report::{Report, Split};
use super::search;
use super::spelling::{KeyOrder, Numbers};
use crate::cli::model;
use crate::config::EngineArgs;

#[derive(Args, Debug)]
pub(in crate::cli) struct MaskArgs {
    /// MaskBench's data: .jsonl or .jsonl.gz.
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// The model whose vocabulary is masked: a path or a known name.
    #[arg(long, env = "FORMWORK_MODEL", default_value = "smollm2")]
    model: String,
    /// Where the json-schema plugin is.
    #[arg(
        long,
        env = "FORMWORK_PLUGINS_DIR",
        default_value = "dist/plugins",
        value_name = "DIR"
    )]
    plugins_dir: PathBuf,
    /// Only names that begin like this.
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
    /// Print JSON, with the names of all that went wrong.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &MaskArgs) -> Result<()> {
    let mut bench = Bench::new(arguments)?;
    let mut splits: BTreeMap<String, Split> = BTreeMap::new();
    read(&arguments.data, |case| {
        let wanted = arguments.only.as_ref();
        if wanted.is_none_or(|prefix| case.name.starts_with(prefix.as_str())) {
            let split = splits.entry(case.split().to_owned()).or_default();
            bench
                .case(&case, split)
                .with_context(|| case.name.clone())?;
        }
        Ok(())
    })?;
    let report = Report::new(bench.vocabulary.model().to_owned(), splits);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report.json())?);
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

struct Bench {
    vocabulary: Arc<Vocabulary>,
    native: Arc<Grammars>,
    /// Over single bytes, to look for an order of keys.
    bytes: Arc<Grammars>,
    plugin: Plugin,
    _sandbox: Sandbox,
    instances: usize,
}

/// What became of a text.
#[derive(Clone, Copy)]
struct Tried {
    /// Every token was in its mask, and an end in the last one.
    written: bool,
    /// It passed validation as well.
    fits: bool,
    /// The plugin and the native grammar say the same.
    agreed: bool,
}

impl Bench {
    fn new(arguments: &MaskArgs) -> Result<Self> {
        let model = model::load(&arguments.model, &EngineArgs::default(), PackedCache::Auto)?;
        let tokenizer = model.tokenizer();
        let rows = u32::try_from(model.info().vocab_size)?;
        let vocabulary = Arc::new(Vocabulary::new(
            &model.info().name,
            tokenizer.tok_env(),
            rows,
            tokenizer.end_tokens().to_vec(),
        )?);
        // How long compiling takes is what is measured here, on however busy a machine.
        let patient = || GrammarLimits {
            compile_ms: 30_000,
            ..GrammarLimits::default()
        };
        let grammars = || Grammars::new(Arc::clone(&vocabulary), patient());
        let limits = SandboxLimits {
            sessions: 16,
            open_ms: 30_000,
            call_ms: 10_000,
            ..SandboxLimits::default()
        };
        let sandbox = Sandbox::new(grammars()?, limits)?;
        Ok(Self {
            native: grammars()?,
            bytes: bytes()?,
            plugin: sandbox.admit(&component(&arguments.plugins_dir)?)?,
            vocabulary,
            _sandbox: sandbox,
            instances: 0,
        })
    }

    fn case(&mut self, case: &Case, split: &mut Split) -> Result<()> {
        split.schemas += 1;
        let started = Instant::now();
        let compiled = self
            .native
            .compile(&Source::JsonSchema(case.schema.to_string().into()));
        let compile = started.elapsed();
        let request = self.request(case);
        let started = Instant::now();
        let opened = self.plugin.open(&request);
        let open = started.elapsed();
        let grammar = match (compiled, &opened) {
            (Ok(grammar), Ok(_)) => grammar,
            (Err(failure), Err(_)) => {
                let line = format!("{}: {failure}", case.name);
                match failure.kind {
                    FailureKind::Unsatisfiable => {
                        split.unsatisfiable.push(line);
                        // No value is allowed: every instance is refused, and rightly if invalid.
                        split.none_allowed(case);
                    }
                    _ => split.refused.push(line),
                }
                return Ok(());
            }
            (native, plugin) => {
                let (native, plugin) = (native.err(), plugin.as_ref().err());
                let line = format!("{}: {native:?} and {plugin:?}", case.name);
                split.disagreements.push(line);
                return Ok(());
            }
        };
        drop(opened);
        split.slow_compiles.offer(compile, || case.name.clone());
        split.compile.add(compile);
        split.open.add(open);
        self.instances_of(case, &grammar, &request, split)
    }

    fn request(&self, case: &Case) -> OpenRequest {
        OpenRequest {
            params: json!({"schema": case.schema}).to_string(),
            prompt: Arc::from([]),
            max_tokens: 100_000,
            request_id: case.name.clone(),
        }
    }

    fn instances_of(
        &mut self,
        case: &Case,
        grammar: &Arc<Grammar>,
        request: &OpenRequest,
        split: &mut Split,
    ) -> Result<()> {
        let order = KeyOrder::of(&case.schema);
        let validated = !grammar.unmasked().is_empty();
        split.validated += usize::from(validated);
        for (index, instance) in case.tests.iter().enumerate() {
            let place = format!("{} {index}", case.name);
            let mut tried = self.instance(grammar, request, &order.write(&instance.data), split)?;
            if instance.valid && !tried.written {
                // Keys in another order than the one guessed, perhaps.
                if let Some(text) = self.reordered(case, &instance.data) {
                    tried = self.instance(grammar, request, &text, split)?;
                    split.reordered += usize::from(tried.written);
                }
            }
            if !tried.agreed {
                split.disagreements.push(place.clone());
            }
            let verdicts = split.verdicts(validated);
            match (instance.valid, tried.fits) {
                (true, false) => verdicts.refused.push(place),
                (false, true) => verdicts.accepted.push(place),
                _ => {}
            }
            match instance.valid {
                true => verdicts.valid += 1,
                false => verdicts.invalid += 1,
            }
        }
        Ok(())
    }

    /// The instance in an order of keys that its grammar takes.
    fn reordered(&self, case: &Case, instance: &serde_json::Value) -> Option<String> {
        let source = Source::JsonSchema(case.schema.to_string().into());
        let grammar = self.bytes.compile(&source).ok()?;
        let numbers = Numbers::of(&case.schema);
        let guessed = serde_json::from_str(&KeyOrder::of(&case.schema).write(instance)).ok()?;
        let find = |instance| search::find(&grammar.start(), instance, numbers);
        find(instance).or_else(|| find(&guessed))
    }

    /// Masks every token of a text, natively and through a session of the plugin; validates it in both
    /// ways if it can be written.
    fn instance(
        &mut self,
        grammar: &Arc<Grammar>,
        request: &OpenRequest,
        text: &str,
        split: &mut Split,
    ) -> Result<Tried> {
        let place = request.request_id.as_str();
        let (mut session, mut matcher) = self.session(request)?;
        let mut walk = |through_plugin: bool| match through_plugin {
            true => self.walk(&mut matcher, text, &mut split.plugin, place),
            false => self.walk(&mut grammar.start(), text, &mut split.native, place),
        };
        // In turns, so that neither always finds the lexer's states warm.
        let first = self.instances.is_multiple_of(2);
        let (one, other) = (walk(first)?, walk(!first)?);
        self.instances += 1;
        let mut tried = Tried {
            written: one && other,
            fits: one && other,
            agreed: one == other,
        };
        if tried.written && !grammar.unmasked().is_empty() {
            let value = FieldValue {
                field: "value".into(),
                bytes: text.as_bytes().to_vec(),
                attempts: 1,
            };
            let verdict = session.check(&value)? == Verdict::Accept;
            tried.fits = grammar.validate(text.as_bytes()).is_ok();
            tried.agreed &= tried.fits == verdict;
        }
        Ok(tried)
    }

    /// A session with the matcher of its one field.
    fn session(&self, request: &OpenRequest) -> Result<(Session, Matcher)> {
        let mut session = self.plugin.open(request)?;
        let plan = session.plan(Observed::Started)?;
        for action in plan {
            if let Action::Field(field) = action {
                return Ok((session, field.matcher));
            }
        }
        bail!("the plugin plans no field")
    }

    /// Walks along the tokens of a text; whether all are allowed, and an end after them. Where the text is
    /// forced in other tokens than the whole text has, those are taken, as the engine does.
    fn walk(
        &self,
        matcher: &mut Matcher,
        text: &str,
        times: &mut MaskTimes,
        place: &str,
    ) -> Result<bool> {
        let mut mask = |matcher: &mut Matcher, left: &[u8]| -> Result<_> {
            let clock = Clock::start();
            let mask = matcher.mask();
            times.add(clock, || {
                let next: String = String::from_utf8_lossy(left).chars().take(24).collect();
                format!("{place} before {next:?}")
            });
            Ok(mask?)
        };
        let mut left = text.as_bytes();
        let mut tokens = self.vocabulary.tokenize(left);
        tokens.reverse();
        while let Some(mut token) = tokens.pop() {
            if !mask(matcher, left)?.is_allowed(token) {
                let forced = matcher.forced_tokens().first().copied();
                let fits = |token: &TokenId| left.starts_with(self.vocabulary.bytes(*token));
                match forced.filter(fits) {
                    Some(other) if other != token => token = other,
                    _ => return Ok(false),
                }
                tokens = self
                    .vocabulary
                    .tokenize(&left[self.vocabulary.bytes(token).len()..]);
                tokens.reverse();
            }
            left = &left[self.vocabulary.bytes(token).len()..];
            matcher.commit(token)?;
        }
        let last = mask(matcher, left)?;
        Ok(self
            .vocabulary
            .end()
            .iter()
            .any(|&end| last.is_allowed(end)))
    }
}

fn bytes() -> Result<Arc<Grammars>> {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let size = env.tok_trie().vocab_size() as u32;
    let end = vec![env.tok_trie().eos_token()];
    let vocabulary = Arc::new(Vocabulary::new("bytes", env, size, end)?);
    Ok(Grammars::new(vocabulary, GrammarLimits::default())?)
}

/// The stock plugin's component.
fn component(folder: &std::path::Path) -> Result<Vec<u8>> {
    let advice = || {
        format!(
            "{}: build the stock plugins with `make plugins`",
            folder.display()
        )
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(advice)? {
        let path = entry?.path();
        let name = path.file_name().and_then(std::ffi::OsStr::to_str);
        if name.is_some_and(|name| name.starts_with("formwork--json-schema@")) {
            found.push(path);
        }
    }
    found.sort();
    let path = found.pop().with_context(advice)?;
    std::fs::read(&path).with_context(|| path.display().to_string())
}
