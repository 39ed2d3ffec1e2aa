//! From the engine's events to the client: text at character boundaries, stop strings, JSON and SSE.

mod answer;
mod calls;
mod held;
mod reasoning;
mod run;
mod sink;
mod sse;
mod stops;
mod text;
mod wire;

pub use calls::CallDelta;
pub use run::{Run, Update};
pub use sink::{ChannelSink, Tagged};
pub use sse::EventStream;
pub use text::{Piece, ShownToken, TextStream};
pub use wire::{Api, Wire, complete};
