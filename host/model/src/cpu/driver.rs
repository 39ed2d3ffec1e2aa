//! The thread that runs steps, so that whoever launches one can go on.

use super::forward::Forward;
use super::probe::Off;
use formwork_engine::StepInput;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A step to run.
pub(super) struct Work {
    pub(super) forward: Box<Forward>,
    pub(super) input: StepInput,
}

/// What comes back.
pub(super) struct Outcome {
    pub(super) forward: Box<Forward>,
    /// Why the step failed.
    pub(super) failure: Option<String>,
}

/// Handing over work and outcome takes no allocation.
pub(super) struct Driver {
    /// `None` only while it ends.
    work: Option<SyncSender<Work>>,
    done: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts the thread.
    pub(super) fn start() -> std::io::Result<Self> {
        let (work, steps) = sync_channel::<Work>(1);
        let (outcomes, done) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("compute-0".into())
            .spawn(move || {
                while let Ok(step) = steps.recv() {
                    // Nobody listens when the backend was dropped meanwhile.
                    let _ = outcomes.send(run(step));
                }
            })?;
        Ok(Self {
            work: Some(work),
            done,
            thread: Some(thread),
        })
    }

    /// Hands a step over; `false` when the thread is gone.
    pub(super) fn launch(&self, work: Work) -> bool {
        self.work
            .as_ref()
            .is_some_and(|sender| sender.send(work).is_ok())
    }

    /// Waits for the step; `None` when the thread is gone.
    pub(super) fn wait(&self) -> Option<Outcome> {
        self.done.recv().ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // Its steps' panics are caught.
            let _ = thread.join();
        }
    }
}

fn run(work: Work) -> Outcome {
    let Work { mut forward, input } = work;
    // A panic leaves at most wrong numbers behind, in blocks that the engine will not use.
    let result = catch_unwind(AssertUnwindSafe(|| forward.step(&input, &mut Off)));
    Outcome {
        forward,
        failure: result.err().map(|panic| panic_message(&*panic)),
    }
}

/// What a panic said.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "the forward pass panicked: {}",
        text.unwrap_or("no message")
    )
}
