//! Keeping packed weights while the model already serves.

use super::PackedError;
use crate::Model;
use formwork_kernels::step_aside;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A thread of low priority that writes a model's packed weights to their file, once. What becomes of it is in
/// the log. Dropping it stops the work and waits for it; an unfinished file is removed.
pub struct PackedWriter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PackedWriter {
    /// Starts the thread, if the model was loaded with weights that are to be kept and are not yet.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(model: &Arc<Model>) -> io::Result<Option<Self>> {
        if model.packed_weights_to_keep().is_none() {
            return Ok(None);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (model, stopped) = (Arc::clone(model), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("packed-weights".into())
            .spawn(move || {
                step_aside();
                keep(&model, &stopped);
            })?;
        Ok(Some(Self {
            stop,
            thread: Some(thread),
        }))
    }
}

impl Drop for PackedWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened, and nothing depends on the file.
            let _ = thread.join();
        }
    }
}

fn keep(model: &Model, stop: &AtomicBool) {
    let Some(file) = model.packed_weights_to_keep() else {
        return;
    };
    let file = file.display();
    match model.keep_packed_weights(stop) {
        Ok(bytes) => tracing::info!(%file, bytes, "keeps the packed weights for the next start"),
        Err(error @ (PackedError::Busy | PackedError::Stopped)) => {
            tracing::info!(%file, "packed weights are not kept: {error}");
        }
        Err(error) => tracing::info!(
            %file,
            "packed weights are not kept, so each start packs them anew: {error}; \
             with --packed-cache never this is not tried"
        ),
    }
}
