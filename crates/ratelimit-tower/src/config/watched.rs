//! A file that is read again, to find out whether its content has changed.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use crate::lock;

/// A file, and what was read from it last.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    /// The maximum size, in bytes.
    largest: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What was read last, valid or not.
    last: Seen,
    /// New content that was read once, and has to be read again before it is used.
    pending: Option<Seen>,
}

/// The SHA-256 of the content, or the error.
type Seen = Result<[u8; 32], io::ErrorKind>;

impl Watched {
    /// Reads a file for the first time.
    pub(super) fn open(path: PathBuf, largest: u64) -> (Self, io::Result<Vec<u8>>) {
        let content = read(&path, largest);
        let state = Mutex::new(State { last: seen(&content), pending: None });
        (Self { path, largest, state }, content)
    }

    /// The beginning of the SHA-256 of a content, in hexadecimal digits.
    pub(super) fn hash(content: &[u8]) -> String {
        Sha256::digest(content).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Reads the file, and calls `take` with the content if it has changed. With `settle`, only if the call before has read
    /// the same content. Calls from several threads take turns.
    pub(super) fn changed<T>(&self, settle: bool, take: impl FnOnce(io::Result<Vec<u8>>) -> T) -> Option<T> {
        self.changed_or(settle, || false, take)
    }

    /// Like [`changed`](Self::changed), but also takes a content that has not changed if `again` returns true.
    pub(super) fn changed_or<T>(
        &self,
        settle: bool,
        again: impl FnOnce() -> bool,
        take: impl FnOnce(io::Result<Vec<u8>>) -> T,
    ) -> Option<T> {
        // First, so that nobody uses a content that was read before the one in use.
        let mut state = lock(&self.state);
        let content = read(&self.path, self.largest);
        let seen = seen(&content);
        if state.last != seen && settle && state.pending != Some(seen) {
            state.pending = Some(seen);
            return None;
        }
        state.pending = None;
        if state.last == seen && !again() {
            return None;
        }
        state.last = seen;
        Some(take(content))
    }

    /// Reads the file, and returns whether it has changed.
    pub(super) fn has_changed(&self, settle: bool) -> bool {
        self.changed(settle, drop).is_some()
    }
}

fn seen(content: &io::Result<Vec<u8>>) -> Seen {
    content.as_ref().map(|bytes| Sha256::digest(bytes).into()).map_err(io::Error::kind)
}

fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        let message = format!("it is larger than {} MiB", largest >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
