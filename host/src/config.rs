//! Configuration: one struct per concern, units in the names, each default explained in `--help`.

mod limits;

pub use limits::LimitArgs;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use formwork_model::{KvDtype, PackedCache};

/// The directory for models and other files that outlive a run: `$FORMWORK_HOME`, else
/// `~/.cache/formwork`, else `.formwork` in the working directory where no home is known.
pub fn home_dir() -> PathBuf {
    if let Some(home) = std::env::var_os("FORMWORK_HOME").filter(|home| !home.is_empty()) {
        return PathBuf::from(home);
    }
    match std::env::home_dir() {
        Some(home) => home.join(".cache").join("formwork"),
        None => PathBuf::from(".formwork"),
    }
}

/// The stock plugins' directory when none is named: `dist/plugins` in the working directory.
pub const STOCK_PLUGINS_DIR: &str = "dist/plugins";

/// What `formwork serve` needs to know.
#[derive(Args, Clone, Debug)]
pub struct ServeConfig {
    /// Address to listen on. The default is reachable from this machine only; any other address
    /// needs --api-key-file, or --insecure to say that no key is wanted.
    #[arg(long, env = "FORMWORK_HOST", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), help_heading = "Network")]
    pub host: IpAddr,

    /// Port to listen on; 0 lets the system choose a free one, which is printed at the start.
    #[arg(
        long,
        env = "FORMWORK_PORT",
        default_value_t = 8080,
        help_heading = "Network"
    )]
    pub port: u16,

    /// File of API keys, one per line (`key` or `name:key`; `#` starts a comment). Requests then
    /// need `Authorization: Bearer KEY`.
    #[arg(
        long,
        env = "FORMWORK_API_KEY_FILE",
        value_name = "FILE",
        help_heading = "Network"
    )]
    pub api_key_file: Option<PathBuf>,

    /// Listen on a public address without API keys: anyone who can reach the port can run plugins.
    #[arg(long, help_heading = "Network")]
    pub insecure: bool,

    /// The model: a .gguf file, a directory with safetensors, or a known name (`smollm2`), which
    /// `formwork model pull` fetches.
    #[arg(
        long,
        env = "FORMWORK_MODEL",
        default_value = "smollm2",
        help_heading = "Model"
    )]
    pub model: String,

    /// Name of the model in the API. Default: the known name, else the file's name without its ending.
    #[arg(
        long,
        env = "FORMWORK_MODEL_ID",
        value_name = "NAME",
        help_heading = "Model"
    )]
    pub model_id: Option<String>,

    /// Whether weights as the kernels want them are kept in a file beside the model, MODEL.gguf.packed, so that
    /// later starts need not pack them again. auto: for models with 64 MiB or more of quantised weights. The
    /// file is written once, while the server runs, and can be removed at any time.
    #[arg(
        long,
        env = "FORMWORK_PACKED_CACHE",
        default_value_t = PackedCache::Auto,
        value_name = "auto|always|never",
        help_heading = "Model"
    )]
    pub packed_cache: PackedCache,

    /// Uploaded plugins are kept here: a catalogue and one file per digest. One server per directory.
    #[arg(
        long,
        env = "FORMWORK_DATA_DIR",
        default_value = ".formwork",
        value_name = "DIR",
        help_heading = "Plugins"
    )]
    pub data_dir: PathBuf,

    /// Stock plugins, files named `formwork--NAME@VERSION.wasm`. Default: dist/plugins where it exists.
    #[arg(
        long,
        env = "FORMWORK_PLUGINS_DIR",
        value_name = "DIR",
        help_heading = "Plugins"
    )]
    pub plugins_dir: Option<PathBuf>,

    /// The engine's shape.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// Bounds on what a client may send and how long it may take.
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// Sizes of the engine, the KV cache and the batch.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Threads of the forward pass. Default: all cores; more than that only makes them wait.
    #[arg(long, env = "FORMWORK_THREADS", help_heading = "Engine")]
    pub threads: Option<usize>,

    /// Memory for the KV cache, in MiB. The default holds about 20,000 tokens of SmolLM2-135M.
    #[arg(
        long,
        env = "FORMWORK_KV_CACHE_MIB",
        default_value_t = 512,
        value_name = "MIB",
        help_heading = "Engine"
    )]
    pub kv_cache_mib: usize,

    /// What the KV cache holds: f16, or int8 with a scale per token and head, which holds nearly twice as
    /// many tokens in the same memory and reads long contexts faster, at a small loss of accuracy.
    #[arg(
        long,
        env = "FORMWORK_KV_DTYPE",
        default_value_t = KvDtype::F16,
        value_name = "f16|int8",
        help_heading = "Engine"
    )]
    pub kv_dtype: KvDtype,

    /// Sequences in one step. Beyond the default a CPU gains little and each row gets slower.
    #[arg(
        long,
        env = "FORMWORK_MAX_ROWS",
        default_value_t = 64,
        value_name = "N",
        help_heading = "Engine"
    )]
    pub max_rows: usize,

    /// Tokens computed in one step, decodes first, then prompts in chunks. Smaller keeps running
    /// streams smooth while long prompts arrive; larger finishes prompts sooner.
    #[arg(
        long,
        env = "FORMWORK_TOKEN_BUDGET",
        default_value_t = 256,
        value_name = "TOKENS",
        help_heading = "Engine"
    )]
    pub token_budget: usize,

    /// Sequences that may wait for a place in the batch; past this a request gets 429.
    #[arg(
        long,
        env = "FORMWORK_QUEUE_LIMIT",
        default_value_t = 256,
        value_name = "N",
        help_heading = "Engine"
    )]
    pub queue_limit: usize,

    /// Longest prompt plus output, in tokens. Default: what the model was trained for.
    #[arg(
        long,
        env = "FORMWORK_MAX_CONTEXT",
        value_name = "TOKENS",
        help_heading = "Engine"
    )]
    pub max_context: Option<usize>,
}

/// The defaults of `--help`, for tests and for the demo. The environment is not read.
impl Default for ServeConfig {
    fn default() -> Self {
        ServeConfig {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            api_key_file: None,
            insecure: false,
            model: "smollm2".to_owned(),
            model_id: None,
            packed_cache: PackedCache::Auto,
            data_dir: PathBuf::from(".formwork"),
            plugins_dir: None,
            engine: EngineArgs::default(),
            limits: LimitArgs::default(),
        }
    }
}

impl Default for EngineArgs {
    fn default() -> Self {
        EngineArgs {
            threads: None,
            kv_cache_mib: 512,
            kv_dtype: KvDtype::F16,
            max_rows: 64,
            token_budget: 256,
            queue_limit: 256,
            max_context: None,
        }
    }
}

impl ServeConfig {
    /// Where to listen.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// The model's name in the API: `model_id`, else the known name, else the file's stem.
    pub fn served_model_id(&self) -> String {
        if let Some(id) = &self.model_id {
            return id.clone();
        }
        let name = Path::new(&self.model).file_name();
        let name = name.map_or(self.model.as_str().into(), |name| name.to_string_lossy());
        name.strip_suffix(".gguf").unwrap_or(&name).to_owned()
    }

    /// The stock plugins' directory: the one named, else [`STOCK_PLUGINS_DIR`] where it exists.
    pub fn stock_plugins_dir(&self) -> Option<PathBuf> {
        if let Some(dir) = &self.plugins_dir {
            return Some(dir.clone());
        }
        Some(PathBuf::from(STOCK_PLUGINS_DIR)).filter(|dir| dir.is_dir())
    }
}

impl EngineArgs {
    /// Threads of the forward pass: the number given, else the cores of this machine.
    pub fn thread_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.unwrap_or_else(cores).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeConfig,
    }

    #[test]
    fn defaults_in_code_are_the_defaults_of_the_command_line() {
        let parsed = Cli::try_parse_from(["formwork"]).unwrap().serve;
        assert_eq!(
            format!("{parsed:?}"),
            format!("{:?}", ServeConfig::default())
        );
    }

    #[test]
    fn unknown_flags_and_bad_values_are_refused() {
        for arguments in [
            ["formwork", "--max-row", "3"],
            ["formwork", "--port", "70000"],
        ] {
            assert!(
                Cli::try_parse_from(arguments).is_err(),
                "{arguments:?} was accepted"
            );
        }
    }

    #[test]
    fn the_model_is_named_after_its_file_unless_told() {
        let mut config = ServeConfig {
            model: "models/Tiny-1B.Q4.gguf".to_owned(),
            ..ServeConfig::default()
        };
        assert_eq!(config.served_model_id(), "Tiny-1B.Q4");
        config.model = "models/Tiny-1.7B/".to_owned();
        assert_eq!(config.served_model_id(), "Tiny-1.7B");
        config.model_id = Some("tiny".to_owned());
        assert_eq!(config.served_model_id(), "tiny");
        assert_eq!(ServeConfig::default().served_model_id(), "smollm2");
    }
}
