//! Nothing but the memory that a limiter of ours takes for each key: what a call waits for on this machine if it does no more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Allow, Contestant, Limiter};
use crate::keys::Key;

pub(crate) struct MemoryAlone;

/// As large as a block of the memory store's, which holds so many keys.
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
