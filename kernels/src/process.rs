//! What a process asks of the system about itself.

/// Lets all other threads go before the calling one, from now on. Does nothing where a thread has no priority of
/// its own.
pub fn step_aside() {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes numbers and reaches no memory of this process. On Linux process 0 stands for the
    // calling thread. A wish: without it the thread has the priority of others.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}

/// The user whose rights this process has.
#[cfg(unix)]
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: the call takes nothing, reaches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_calling_thread_steps_aside() {
        // SAFETY: as in `step_aside`; a thread of this test's own.
        let priority = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = priority();
        let aside = std::thread::spawn(move || {
            super::step_aside();
            priority()
        });
        assert_eq!(aside.join().unwrap(), 19);
        assert_eq!(priority(), before);
    }

    #[cfg(unix)]
    #[test]
    fn what_this_process_creates_belongs_to_its_user() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap();
        assert_eq!(file.metadata().unwrap().uid(), super::effective_user());
    }
}
