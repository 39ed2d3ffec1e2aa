//! `formwork bench`: figures of this machine, against public data.

mod case;
mod figures;
mod mask;
mod report;
mod search;
mod spelling;
mod step;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub(super) enum BenchCommand {
    /// Mask every token of MaskBench's instances, natively and through the json-schema plugin.
    #[command(
        after_help = "DATA holds one JSON object a line, also gzipped: `name`, `schema`, and `tests`, a list of
{`valid`, `data`}. A name's first part, up to `---` or its first underscore, is its split.

An instance counts as accepted when every token of its compact form is in its mask, an end token is in
the last one, and it passes validation where something is left to validate. Numbers are written in their
plainest form and keys in the order that the schema gives them; where a valid one cannot be written so, an
order in which it can is searched for.

Examples:
  formwork bench mask --data maskbench.jsonl.gz
  formwork bench mask --data maskbench.jsonl.gz --model smollm2 --only Github_hard --json"
    )]
    Mask(mask::MaskArgs),
    /// Show where a step's time goes, against what the machine can do at most.
    #[command(after_help = "Examples:
  formwork bench step --batch 8 --context 512
  formwork bench step --tokens 512 --context 0 --json")]
    Step(step::StepArgs),
}

pub(super) fn run(command: BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Mask(arguments) => mask::run(&arguments),
        BenchCommand::Step(arguments) => step::run(&arguments),
    }
}
