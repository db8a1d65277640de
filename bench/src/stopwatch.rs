//! The machine's clock, and the time that this thread waited for the processor.
#![allow(clippy::disallowed_methods, reason = "measures how long things take")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

/// A running stopwatch.
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

/// The time that this thread was ready but did not run, because other threads or the host had the processor. On a busy
/// machine this is most of the time of a slow call, and not the fault of the called code.
#[derive(Debug)]
pub(crate) struct Away {
    start: Stopwatch,
    /// Nanoseconds off the processor at the last call.
    off: u64,
    /// The number of voluntary waits, and the time waited for other threads, at the last slow call.
    slept: u64,
    waited: u64,
    status: Option<File>,
    waits: Option<File>,
}

impl Away {
    /// A measurement for the current thread.
    pub(crate) fn of_this_thread() -> Self {
        let open = |name: &str| File::open(format!("/proc/thread-self/{name}")).ok();
        let (status, waits) = (open("status"), open("schedstat"));
        let mut away = Self { start: Stopwatch::start(), off: 0, slept: 0, waited: 0, status, waits };
        away.since_last();
        away
    }

    /// Starts a new measurement.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.off = self.off();
    }

    /// The time in nanoseconds since the last [`begin`](Self::begin) or call of this. Zero if the kernel does not report it.
    /// Does not include voluntary waits, such as for a lock.
    pub(crate) fn since_last(&mut self) -> u64 {
        let mut text = [0; 4_096];
        let status = read(self.status.as_ref(), &mut text);
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let slept = number(line.unwrap_or_default(), 0);
        let waited = number(read(self.waits.as_ref(), &mut text), 1);
        let off = self.off();
        let has_slept = slept != std::mem::replace(&mut self.slept, slept);
        let waiting = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        let away = off.saturating_sub(std::mem::replace(&mut self.off, off));
        if has_slept { away.min(waiting) } else { away }
    }

    /// The time since the start. The CPU clock of a thread stands still while the thread does not run.
    fn off(&self) -> u64 {
        let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let ran = u64::try_from(ran.tv_sec * 1_000_000_000 + ran.tv_nsec).unwrap_or_default();
        // The CPU time before the start is constant, and only differences matter.
        (1 << 62) + self.start.nanos() - ran
    }
}

fn read<'t>(file: Option<&File>, text: &'t mut [u8]) -> &'t str {
    let length = file.and_then(|file| file.read_at(text, 0).ok()).unwrap_or(0);
    std::str::from_utf8(&text[..length]).unwrap_or_default()
}

fn number(text: &str, nth: usize) -> u64 {
    text.split_whitespace().nth(nth).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sleep_is_not_counted() {
        let mut away = Away::of_this_thread();
        away.begin();
        std::thread::sleep(Duration::from_millis(200));
        // There may have been some wait for the processor after it.
        assert!(away.since_last() < 150_000_000);
    }
}
