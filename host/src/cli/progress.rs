//! Progress of what takes longer than a second: bars on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// One piece of work. Dropping it clears the bar.
pub(super) struct Progress {
    bar: ProgressBar,
    terminal: bool,
    last_phase: Mutex<String>,
}

impl Progress {
    pub(super) fn new(phase: &str) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = match terminal {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        bar.enable_steady_tick(Duration::from_millis(100));
        let progress = Progress {
            bar,
            terminal,
            last_phase: Mutex::default(),
        };
        progress.phase(phase);
        progress
    }

    /// Begins a part whose length is not known.
    pub(super) fn phase(&self, phase: &str) {
        let mut last = match self.last_phase.lock() {
            Ok(last) => last,
            Err(poisoned) => poisoned.into_inner(),
        };
        if *last == phase {
            return;
        }
        *last = phase.to_owned();
        self.bar.unset_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            self.bar.set_style(style);
        }
        self.bar.set_message(phase.to_owned());
        if !self.terminal {
            eprintln!("{phase}…");
        }
    }

    /// Bytes done, of the total where it is known.
    pub(super) fn bytes(&self, done: u64, total: Option<u64>) {
        if self.bar.length() != total {
            let template = match total {
                Some(_) => "{spinner} {msg} {bar:30} {bytes}/{total_bytes} {eta}",
                None => "{spinner} {msg} {bytes} {bytes_per_sec}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
            match total {
                Some(total) => self.bar.set_length(total),
                None => self.bar.unset_length(),
            }
        }
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
