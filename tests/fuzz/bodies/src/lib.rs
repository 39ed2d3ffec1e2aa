//! What the fuzz targets do, as plain functions over any bytes. Each panics when something does not hold.
//!
//! An input is a text, then, after the first byte 0xFF (which no text holds), the choices of a walk; where
//! they run out, choices follow from the input's digest. `tests/seeds.rs` runs every function over the
//! checked-in seeds and over what a seeded generator makes of them; the binaries beside this crate hand them
//! to libFuzzer.

mod closing;
#[path = "../../../../host/src/constrain/mod.rs"]
#[allow(dead_code, unreachable_pub)]
// The walk that carries out plans: a module of the server's crate, taken alone so that an instrumented build
// need not compile the server.
mod constrain;
mod dice;
mod languages;
mod plans;
mod sources;
mod walks;
mod world;

pub use dice::Dice;
pub use plans::plan;
pub use sources::{gbnf, lark, regex, schema};
pub use walks::walk;

/// A fuzz target: its name, which is that of its folder of seeds, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("schema", schema),
    ("lark", lark),
    ("regex", regex),
    ("gbnf", gbnf),
    ("plan", plan),
    ("walk", walk),
];

/// Has panics told but not abort the process: the grammar engine's are caught by the sandbox, which is part of
/// what is tried here. One that leaves a target still ends the run.
pub fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}
