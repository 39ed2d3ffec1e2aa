//! `formwork plugin check`: what a server would say of a component.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use formwork_sandbox::{
    Action, GrammarLimits, Grammars, Observed, OpenRequest, Plugin, Sandbox, SandboxLimits,
    Vocabulary,
};

use super::table::{printable, size};
use crate::build::{STOCK_SIZE_LIMIT, interfaces};

/// Output tokens that the trial session may use.
const TRIAL_MAX_TOKENS: u32 = 256;

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// A component (.wasm).
    file: PathBuf,
    /// Open a session with these params, a JSON object, and show its first plan.
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
}

pub(super) fn run(arguments: &CheckArgs) -> Result<()> {
    let path = arguments.file.display();
    let bytes = std::fs::read(&arguments.file).with_context(|| path.to_string())?;
    let (sandbox, vocabulary) = byte_sandbox()?;
    let started = Instant::now();
    let plugin = sandbox
        .admit(&bytes)
        .with_context(|| format!("{path} would be refused"))?;
    let admitted = started.elapsed();
    let limit = match bytes.len() > STOCK_SIZE_LIMIT {
        true => format!(
            " (above the {} of a stock plugin)",
            size(STOCK_SIZE_LIMIT as u64)
        ),
        false => String::new(),
    };
    println!("a server would take {path}");
    println!("  size      {}{limit}", size(bytes.len() as u64));
    println!("  digest    sha256:{}", plugin.digest());
    println!("  admitted  in {:.0} ms", admitted.as_secs_f64() * 1e3);
    let found = interfaces(&bytes).map_err(anyhow::Error::msg)?;
    println!("  imports   {}", printable(&found.imports.join(", ")));
    println!("  exports   {}", printable(&found.exports.join(", ")));
    let description = plugin.description();
    println!("  on late   {:?}", description.on_late);
    let params = serde_json::to_string_pretty(&description.params)?;
    println!(
        "  params    {}",
        printable(&params).replace('\n', "\n            ")
    );
    match &arguments.params {
        Some(params) => trial(&plugin, params, &vocabulary),
        None => Ok(()),
    }
}

/// A sandbox over a vocabulary of the 256 bytes: what a component is does not depend on the model.
fn byte_sandbox() -> Result<(Sandbox, Arc<Vocabulary>)> {
    let env = toktrie::ApproximateTokEnv::single_byte_env();
    let size = env.tok_trie().vocab_size() as u32;
    let end = vec![env.tok_trie().eos_token()];
    let vocabulary = Arc::new(Vocabulary::new("bytes", env, size, end)?);
    let grammars = Grammars::new(Arc::clone(&vocabulary), GrammarLimits::default())?;
    Ok((
        Sandbox::new(grammars, SandboxLimits::default())?,
        vocabulary,
    ))
}

/// Validates params, opens a session and shows its first plan.
fn trial(plugin: &Plugin, params: &str, vocabulary: &Vocabulary) -> Result<()> {
    let value: serde_json::Value = serde_json::from_str(params).context("--params is not JSON")?;
    let schema = jsonschema::validator_for(&plugin.description().params)
        .map_err(|error| anyhow::anyhow!("the plugin's params schema is not valid: {error}"))?;
    for error in schema.iter_errors(&value) {
        println!("  params {}: {error}", error.instance_path());
    }
    anyhow::ensure!(
        schema.is_valid(&value),
        "the plugin would refuse these params"
    );
    let request = OpenRequest {
        params: params.to_owned(),
        prompt: Arc::from([]),
        max_tokens: TRIAL_MAX_TOKENS,
        request_id: "check".to_owned(),
    };
    let mut session = plugin.open(&request).context("opening a session")?;
    let plan = session.plan(Observed::Started).context("the first plan");
    for line in session.take_log() {
        println!("  log       {}", printable(&format!("{line:?}")));
    }
    println!("  plan");
    for action in plan? {
        println!("    {}", printable(&show(&action, vocabulary)));
    }
    Ok(())
}

fn show(action: &Action, vocabulary: &Vocabulary) -> String {
    match action {
        Action::Sample { mask, temperature } => {
            let allowed = mask.num_set();
            let of = vocabulary.size();
            format!("sample one of {allowed} of {of} tokens, temperature {temperature:?}")
        }
        Action::Write(bytes) => format!("write {:?}", String::from_utf8_lossy(bytes)),
        Action::Field(field) => format!(
            "field {:?}: at most {} tokens, check {}, {} attempt(s)",
            field.name, field.max_tokens, field.check, field.retry.attempts
        ),
        Action::Finish => "finish".to_owned(),
    }
}
