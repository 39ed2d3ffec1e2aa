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

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_engine::testing::{Scripted, hashed_logits};
    use formwork_engine::{Capacity, Engine, EngineConfig, Request, Sampling};
    use std::time::Duration;
    use tokio::sync::mpsc::unbounded_channel;
    use toktrie::ApproximateTokEnv;

    /// What nobody takes in holds nothing up: sequences come to their ends, and all that they said is there.
    #[test]
    fn the_engine_goes_on_when_nobody_listens() {
        let env = ApproximateTokEnv::single_byte_env();
        let vocab_size = env.tok_trie().vocab_size();
        let capacity = Capacity {
            blocks: 64,
            block_size: 16,
            max_context: 512,
            vocab_size,
        };
        let backend = Box::new(Scripted::new(capacity, hashed_logits(vocab_size)));
        let engine = Engine::start(backend, env, EngineConfig::default()).unwrap();
        let (sender, mut events) = unbounded_channel();
        let request = |answer| Request {
            prompt: vec![97, 98, 99],
            max_tokens: 200,
            sampling: Sampling::default(),
            end: Vec::new(),
            constraint: None,
            sink: Box::new(ChannelSink::new(answer, sender.clone())),
            priority: 0,
        };
        engine.submit(vec![request(0), request(1)]).unwrap();
        let over = || engine.stats().sequences_finished == 2;
        let mut moments = 10_000;
        while !over() && moments > 0 {
            std::thread::sleep(Duration::from_millis(2));
            moments -= 1;
        }
        assert!(over(), "{:?}", engine.stats());
        let (mut tokens, mut bytes) = ([0; 2], [0; 2]);
        while let Ok((answer, event)) = events.try_recv() {
            match event {
                Some(Event::Tokens(chunk)) => bytes[answer] += chunk.bytes.len(),
                Some(Event::Finished { usage, .. }) => tokens[answer] = usage.completion,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(tokens, [200; 2]);
        assert!(bytes.iter().all(|&bytes| bytes > 100), "{bytes:?}");
    }
}
