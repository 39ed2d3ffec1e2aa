//! What the host holds: a handle to the engine's thread.

use crate::core::{Core, Message, Shared};
use crate::workers::Workers;
use crate::{Backend, Capacity, EngineConfig, Request, SeqId, Stats, SubmitError};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A handle to one running engine; clones share it. The engine goes down with its last handle.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    messages: Sender<Message>,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    capacity: Capacity,
    queue_limit: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the engine on a thread of its own, with `config.workers` threads for each of its two lanes.
    /// `env` must be the vocabulary of the model behind `backend`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(
        backend: Box<dyn Backend>,
        env: toktrie::TokEnv,
        config: EngineConfig,
    ) -> std::io::Result<Self> {
        let (messages, inbox) = channel();
        let shared = Arc::new(Shared {
            queued: AtomicUsize::new(0),
            stats: Mutex::new(Stats::default()),
        });
        let workers = Workers::start(config.workers, &messages);
        let (capacity, queue_limit) = (backend.capacity(), config.queue_limit);
        let core = Core::new(backend, env, config, inbox, workers, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("formwork-engine".into())
            .spawn(|| core.run())?;
        Ok(Self(Arc::new(Inner {
            messages,
            shared,
            next_id: AtomicU64::new(0),
            capacity,
            queue_limit,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Takes in all of `group` or nothing. The ids are in the group's order.
    ///
    /// # Errors
    /// When the queue has no room for the whole group, a prompt is empty or leaves no room for one token,
    /// or the engine is going down.
    pub fn submit(&self, group: Vec<Request>) -> Result<Vec<SeqId>, SubmitError> {
        let inner = &*self.0;
        let limit = self.max_prompt();
        for request in &group {
            if request.prompt.is_empty() {
                return Err(SubmitError::EmptyPrompt);
            }
            if request.prompt.len() > limit {
                return Err(SubmitError::PromptTooLong {
                    prompt: request.prompt.len(),
                    limit,
                });
            }
        }
        let count = group.len();
        let reserve =
            |queued: usize| (queued + count <= inner.queue_limit).then_some(queued + count);
        inner
            .shared
            .queued
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, reserve)
            .map_err(|waiting| SubmitError::QueueFull {
                waiting,
                limit: inner.queue_limit,
            })?;
        let first = inner.next_id.fetch_add(count as u64, Ordering::Relaxed);
        let ids: Vec<SeqId> = (first..first + count as u64).map(SeqId).collect();
        let group = ids.iter().copied().zip(group).collect();
        inner
            .messages
            .send(Message::Submit(group))
            .map_err(|_| SubmitError::ShuttingDown)?;
        Ok(ids)
    }

    /// Longest prompt that leaves room for one token.
    pub fn max_prompt(&self) -> usize {
        self.max_context() - 1
    }

    /// Longest context, in tokens: the model's own limit or what the whole cache holds.
    pub fn max_context(&self) -> usize {
        let Capacity {
            blocks,
            block_size,
            max_context,
            ..
        } = self.0.capacity;
        max_context.min(blocks * block_size).max(1)
    }

    /// Ends a sequence, be it waiting or running; its blocks are back within one step. Unknown ids are
    /// ignored: the sequence may just have ended by itself.
    pub fn abort(&self, id: SeqId) {
        // When the engine is gone, so is the sequence.
        let _ = self.0.messages.send(Message::Abort(id));
    }

    /// The figures after the last step.
    pub fn stats(&self) -> Stats {
        *self
            .0
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails what is left and waits for the engine's thread to end. Later submissions are refused.
    pub fn shutdown(&self) {
        self.0.stop();
    }
}

impl Inner {
    fn stop(&self) {
        let _ = self.messages.send(Message::Shutdown);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the engine's thread panicked");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}
