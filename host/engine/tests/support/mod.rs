//! What the engine's tests share.

use formwork_engine::{Event, Sink};
use std::sync::mpsc::Sender;

/// Passes everything on.
pub(crate) struct Relay(pub(crate) Sender<Event>);

impl Sink for Relay {
    fn emit(&mut self, event: Event) {
        // A test that has seen enough may have hung up.
        let _ = self.0.send(event);
    }
}
