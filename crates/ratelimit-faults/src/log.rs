//! The file that a worker writes its records to.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::{Clock as _, SystemClock};

use crate::history::Entry;

/// The interval at which records are written to the file, from which the coordinator reads them.
const FLUSH: Duration = Duration::from_millis(50);

/// A longer delay of this process is recorded.
const STALL: Duration = Duration::from_millis(20);

/// Records in a file.
pub(crate) struct Log(Mutex<BufWriter<File>>);

impl Log {
    /// Creates the file.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(BufWriter::new(File::create(path)?))))
    }

    /// Adds a record. If that fails, the history would prove nothing, so the worker ends.
    pub(crate) fn write(&self, entry: &Entry) {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&entry.encode());
        if let Err(error) = written {
            eprintln!("error: the records cannot be written: {error}");
            std::process::exit(1);
        }
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }

    /// Flushes again and again. A flush that comes late shows that the machine did not run this process in time; that is
    /// recorded, because it is not the store's fault that calls are late then.
    ///
    /// Has a thread of its own, so that a store that blocks the runtime does not excuse itself.
    pub(crate) fn flush_always(log: Arc<Self>, clock: SystemClock) {
        std::thread::spawn(move || {
            loop {
                let start = clock.now();
                std::thread::sleep(FLUSH);
                let end = clock.now();
                if end.since(start) > FLUSH + STALL {
                    log.write(&Entry::Stall { start: (start + FLUSH).as_nanos(), end: end.as_nanos() });
                }
                if log.flush().is_err() {
                    return;
                }
            }
        });
    }
}
