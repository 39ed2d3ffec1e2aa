//! The command line: `formwork serve | demo | plugin … | model … | bench …`.
//!
//! Commands print results to stdout and everything about their progress to stderr, so that output
//! can be piped. An error ends with status 1 and says what to do about it where that is known.

mod bench;
mod check;
mod client;
mod demo;
mod model;
mod new;
mod plugin;
mod progress;
mod remote;
mod serve;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ServeConfig;

/// An LLM inference server whose output formats are WebAssembly plugins.
#[derive(Parser, Debug)]
#[command(
    name = "formwork",
    version,
    propagate_version = true,
    after_help = "Start here:
  formwork demo                       see it work: model, plugin, streamed fields, figures
  formwork model pull smollm2         fetch a small model (98 MB)
  formwork serve                      serve it on 127.0.0.1:8080, in the OpenAI API's shape
  formwork plugin new acme/ticket     start a format of your own; then build, check and push it

Most options can be given as environment variables too; `formwork COMMAND --help` names them."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve a model over HTTP until SIGINT or SIGTERM, then let running requests finish.
    #[command(after_help = "Examples:
  formwork serve
  formwork serve --model models/Qwen3-0.6B-Q8_0.gguf --port 9000 --max-context 8192
  formwork serve --host 0.0.0.0 --api-key-file keys.txt

A request, with a stock plugin for its format:
  curl 127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' -d '{
    \"model\": \"smollm2\", \"messages\": [{\"role\": \"user\", \"content\": \"Is water wet?\"}],
    \"plugin\": {\"name\": \"formwork/choice\", \"params\": {\"choices\": [\"yes\", \"no\"]}}}'")]
    Serve(ServeConfig),
    /// Show the whole path on this machine: model, upload, streamed fields, figures; then end.
    Demo(demo::DemoArgs),
    /// Write, build, check, publish and list plugins.
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Fetch models and look into them.
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Measure against public data.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

/// Runs the command line of this process; the whole of `main`.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(config) => serve::run(&config),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Plugin(command) => plugin::run(command),
        Command::Model(command) => model::run(command),
        Command::Bench(command) => bench::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that has enough (`| head`) is no failure.
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Logs to stderr at `RUST_LOG`, else at `default_level`.
fn start_logging(default_level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default_level));
    // Fails only where a subscriber is set already, as in tests.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_is_explained() {
        fn check(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no help",
                command.get_name()
            );
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                let explained = argument.get_help().is_some() || ["help", "version"].contains(&id);
                assert!(explained, "{} --{id} has no help", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
