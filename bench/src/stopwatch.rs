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

/// How long this thread did not have the processor although it could have run: others had it, or the machine that this one is
/// a guest of. On a busy machine that is most of what a slow call waits for, and no fault of what was called.
#[derive(Debug)]
pub(crate) struct Away {
    start: Stopwatch,
    /// Nanoseconds off the processor when this was last asked.
    off: u64,
    /// How often it had slept by itself, and how long it had waited for others, when it was last asked about a slow call.
    slept: u64,
    waited: u64,
    status: Option<File>,
    waits: Option<File>,
}

impl Away {
    /// For the thread that calls it.
    pub(crate) fn of_this_thread() -> Self {
        let open = |name: &str| File::open(format!("/proc/thread-self/{name}")).ok();
        let (status, waits) = (open("status"), open("schedstat"));
        let mut away = Self { start: Stopwatch::start(), off: 0, slept: 0, waited: 0, status, waits };
        away.since_last();
        away
    }

    /// From now on counts what comes.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.off = self.off();
    }

    /// In nanoseconds since [`begin`](Self::begin), or this; zero where the kernel does not tell. Time for which it slept by
    /// itself, as who waits for a lock does, is not among it.
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

    /// Since it was made. The clock of a thread stands still while it does not run.
    fn off(&self) -> u64 {
        let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let ran = u64::try_from(ran.tv_sec * 1_000_000_000 + ran.tv_nsec).unwrap_or_default();
        // What it had run before it was made is the same all the time, and differences are all that is asked for.
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
        // Some wait for the processor there may have been after it.
        assert!(away.since_last() < 150_000_000);
    }
}
