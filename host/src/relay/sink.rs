//! Carries events off the engine's thread.

use formwork_engine::{Event, Sink};
use tokio::sync::mpsc::UnboundedSender;

/// An event with the number of the answer that it is about; `None` when the sequence went away without a
/// last event.
pub type Tagged = (usize, Option<Event>);

/// Sends the events of one sequence into the request's channel. The channel is unbounded so that the
/// engine never waits; `max_tokens` bounds what can be in it.
pub struct ChannelSink {
    answer: usize,
    sender: UnboundedSender<Tagged>,
    over: bool,
}

impl ChannelSink {
    /// For answer number `answer`.
    pub fn new(answer: usize, sender: UnboundedSender<Tagged>) -> Self {
        Self {
            answer,
            sender,
            over: false,
        }
    }
}

impl Sink for ChannelSink {
    fn emit(&mut self, event: Event) {
        self.over |= matches!(event, Event::Finished { .. } | Event::Failed { .. });
        // The receiver is gone when the client is; the abort is on its way then.
        let _ = self.sender.send((self.answer, Some(event)));
    }
}

impl Drop for ChannelSink {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.sender.send((self.answer, None));
        }
    }
}
