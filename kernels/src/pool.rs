//! A pool of threads for jobs of a few microseconds: the threads wait for the next job by spinning
//! for a while, then sleep. Handing out a job takes no lock and no allocation.
//!
//! A job is a function of a piece's index. The caller publishes it, takes pieces like everybody else,
//! and leaves when all pieces are done. It waits for threads that took a piece, not for those still
//! asleep: on a busy machine it does the work alone rather than wait.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread spins before it sleeps: longer than the serial stretches within a step.
const SPIN: Duration = Duration::from_micros(60);
/// Looks at the state between two looks at the clock.
const LOOKS: usize = 64;

/// Set in [`Inner::state`] while threads may join the job.
const OPEN: u64 = 1 << 31;
/// Below it in [`Inner::state`]: the number of threads inside the job.
const INSIDE: u64 = OPEN - 1;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// Keeps a value on cache lines of its own.
#[repr(align(128))]
struct Alone<T>(T);

struct Inner {
    /// Number of the job (upper half), [`OPEN`], threads inside.
    state: Alone<AtomicU64>,
    /// The next piece that nobody has.
    next: Alone<AtomicUsize>,
    /// Written by the owner of `busy` while nobody is inside.
    job: Alone<UnsafeCell<Option<Job>>>,
    /// Held by the caller whose job runs.
    busy: Alone<AtomicBool>,
    /// Threads that sleep or are about to.
    sleeping: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: `job` is the only field that is not `Sync` by itself. It is written by the thread that holds
// `busy`, before it opens the job and after everybody has left the one before; others read it only
// between entering and leaving, which the state's acquire and release order after and before that.
unsafe impl Sync for Inner {}
// SAFETY: as above; the pointer inside `job` is only followed while its owner waits in `Pool::run`.
unsafe impl Send for Inner {}

#[derive(Clone, Copy)]
struct Job {
    work: *const Work<'static>,
    pieces: usize,
}

/// Threads that help whoever calls [`Pool::run`].
pub(crate) struct Pool {
    inner: Arc<Inner>,
    helpers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `helpers` threads.
    pub(crate) fn new(helpers: usize) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            state: Alone(AtomicU64::new(0)),
            next: Alone(AtomicUsize::new(0)),
            job: Alone(UnsafeCell::new(None)),
            busy: Alone(AtomicBool::new(false)),
            sleeping: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self {
            inner,
            helpers: Vec::new(),
        };
        for index in 0..helpers {
            let inner = Arc::clone(&pool.inner);
            let helper = std::thread::Builder::new()
                .name(format!("compute-{}", index + 1))
                .spawn(move || inner.help())?;
            pool.helpers.push(helper);
        }
        Ok(pool)
    }

    /// Threads that helpers are, without the caller.
    pub(crate) fn helpers(&self) -> usize {
        self.helpers.len()
    }

    /// Calls `work` once for each of `0..pieces`, on the caller's thread and the helpers'. When another
    /// job runs already, as in a call from within a job, the caller does all of it.
    ///
    /// # Panics
    /// When `work` does.
    pub(crate) fn run(&self, pieces: usize, work: &Work<'_>) {
        let inner = &*self.inner;
        if pieces <= 1 || self.helpers.is_empty() || inner.busy.0.swap(true, Ordering::Acquire) {
            (0..pieces).for_each(work);
            return;
        }
        let work: *const Work<'_> = work;
        // SAFETY: only the lifetime changes. The pointer is not followed after this function has
        // returned, since it waits below until nobody is inside the job.
        let work: *const Work<'static> = unsafe { std::mem::transmute(work) };
        let job = Job { work, pieces };
        // SAFETY: this thread holds `busy`, and nobody is inside: the last job was closed and left.
        unsafe { *inner.job.0.get() = Some(job) };
        inner.next.0.store(0, Ordering::Relaxed);
        let number = (inner.state.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        inner.state.0.store(number << 32 | OPEN, Ordering::SeqCst);
        if inner.sleeping.load(Ordering::SeqCst) > 0 {
            self.helpers
                .iter()
                .for_each(|helper| helper.thread().unpark());
        }
        let own = catch_unwind(AssertUnwindSafe(|| inner.take_pieces(job)));
        inner.state.0.fetch_and(!OPEN, Ordering::SeqCst);
        inner.wait_until_left();
        let helper_panicked = inner.panicked.swap(false, Ordering::Relaxed);
        inner.busy.0.store(false, Ordering::Release);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!helper_panicked, "a compute thread panicked");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            join_unless_self(helper);
        }
    }
}

/// Waits for a thread to end, unless it is the one that asks.
pub(crate) fn join_unless_self(thread: JoinHandle<()>) {
    let own: Thread = std::thread::current();
    if thread.thread().id() != own.id() {
        // Threads of the pool catch the panics of their work.
        let _ = thread.join();
    }
}

impl Inner {
    fn take_pieces(&self, job: Job) {
        // SAFETY: the job's caller waits in `Pool::run` for all who are inside.
        let work = unsafe { &*job.work };
        loop {
            let piece = self.next.0.fetch_add(1, Ordering::Relaxed);
            if piece >= job.pieces {
                return;
            }
            work(piece);
        }
    }

    fn wait_until_left(&self) {
        let mut looks = 0usize;
        while self.state.0.load(Ordering::Acquire) & INSIDE != 0 {
            std::hint::spin_loop();
            looks += 1;
            // Somebody inside may have lost its processor to this very loop.
            if looks.is_multiple_of(512) {
                std::thread::yield_now();
            }
        }
    }

    /// The life of a helper.
    fn help(&self) {
        let mut last = 0;
        while let Some(number) = self.wait_for_job(last) {
            last = number;
            if !self.enter(number) {
                continue;
            }
            // SAFETY: inside a job; see `Sync` above.
            let job = unsafe { *self.job.0.get() };
            let result = catch_unwind(AssertUnwindSafe(|| {
                if let Some(job) = job {
                    self.take_pieces(job);
                }
            }));
            if result.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// The number of an open job other than `last`; `None` when the pool ends.
    fn wait_for_job(&self, last: u64) -> Option<u64> {
        let open = |state: u64| (state & OPEN != 0 && state >> 32 != last).then_some(state >> 32);
        loop {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                for _ in 0..LOOKS {
                    if let Some(number) = open(self.state.0.load(Ordering::Relaxed)) {
                        return Some(number);
                    }
                    std::hint::spin_loop();
                }
            }
            // Either the caller sees this thread among the sleeping, or this thread sees its job.
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            let idle = open(self.state.0.load(Ordering::SeqCst)).is_none();
            if idle && !self.stop.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
        }
    }

    /// Joins the job `number`, unless it is closed.
    fn enter(&self, number: u64) -> bool {
        let change = |state: u64| (state & OPEN != 0 && state >> 32 == number).then_some(state + 1);
        let state = &self.state.0;
        state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, change)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_piece_is_done_once_job_after_job() {
        for helpers in 0..4 {
            let pool = Pool::new(helpers).unwrap();
            for job in 0..2_000 {
                let pieces = job % 7;
                let done: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                pool.run(pieces, &|piece| {
                    done[piece].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                if job % 500 == 0 {
                    // Long enough for helpers to fall asleep.
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        }
    }

    #[test]
    fn jobs_within_jobs_and_from_several_threads_run() {
        let pool = Pool::new(2).unwrap();
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        pool.run(4, &|_| {
                            pool.run(3, &|_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 3 * 300 * 4 * 3);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2).unwrap();
        for bad in 0..8 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.run(8, &|piece| assert_ne!(piece, bad));
            }));
            assert!(result.is_err());
            let count = AtomicUsize::new(0);
            pool.run(8, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 8);
        }
    }
}
