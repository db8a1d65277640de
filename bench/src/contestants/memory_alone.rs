//! Only the memory of our limiter for each key: the minimum time of a call on this machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::contestant::{Allow, Contestant, Limiter};
use crate::keys::Key;

pub(crate) struct MemoryAlone;

/// The size of a block of the memory store, and its number of keys.
type Block = [u64; 280];
const KEYS: u64 = 48;

#[derive(Default)]
pub(crate) struct Blocks {
    calls: AtomicU64,
    #[allow(clippy::vec_box, reason = "as the memory store has them")]
    blocks: Mutex<Vec<Box<Block>>>,
}

impl Contestant for MemoryAlone {
    type Limiter = Blocks;
    type Short = Blocks;

    fn build(&self, _: Allow) -> Blocks {
        Blocks::default()
    }

    fn short(&self) -> Blocks {
        Blocks::default()
    }
}

impl Limiter for Blocks {
    fn check(&self, _: &Key) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call.is_multiple_of(KEYS) {
            let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.push(Box::new([call; 280]));
        }
        true
    }
}
