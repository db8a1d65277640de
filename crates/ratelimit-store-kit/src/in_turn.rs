//! Connections that are used in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Some connections to one server, which calls use in turn.
///
/// ```
/// use ratelimit_store_kit::InTurn;
///
/// let connections = InTurn::new(2, || String::from("a connection"));
/// assert!(!std::ptr::eq(connections.next(), connections.next()));
/// assert_eq!(connections.all().len(), 2);
/// ```
#[derive(Debug)]
pub struct InTurn<T> {
    all: Vec<T>,
    turn: AtomicUsize,
}

impl<T> InTurn<T> {
    /// So many of them, but at least one.
    pub fn new(number: usize, mut make: impl FnMut() -> T) -> Self {
        Self { all: (0..number.max(1)).map(|_| make()).collect(), turn: AtomicUsize::new(0) }
    }

    /// The next of them, in turn.
    pub fn next(&self) -> &T {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.all[turn % self.all.len()]
    }

    /// All of them.
    pub fn all(&self) -> &[T] {
        &self.all
    }
}
