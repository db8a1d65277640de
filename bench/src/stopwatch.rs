//! The machine's clock, and how long this thread was kept from the processor.
#![allow(clippy::disallowed_methods, reason = "measures how long things take")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

/// Runs since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::cast_precision_loss, reason = "a measurement")]
    pub(crate) fn seconds(self) -> f64 {
        self.nanos() as f64 / 1e9
    }
}

/// How long this thread has been ready to run while others had the processor. On a busy machine that is most of what a
/// slow call waits for, and no fault of what was called.
#[derive(Debug)]
pub(crate) struct Waiting(Option<File>);

impl Waiting {
    /// For the thread that calls it.
    pub(crate) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// In nanoseconds; zero where the kernel does not tell.
    pub(crate) fn nanos(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
        text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}
