//! The post between nodes: what one sends is collected, to be delivered when and to whom the simulation says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ratelimit_cluster::{Transport, TransportError};

/// One node's way to the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Post(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    sent: Mutex<Vec<Arc<[u8]>>>,
    fails: AtomicBool,
    /// What fails is sent all the same.
    is_ambiguous: AtomicBool,
}

impl Post {
    pub(crate) fn fail(&self, fails: bool, is_ambiguous: bool) {
        self.0.fails.store(fails, Ordering::SeqCst);
        self.0.is_ambiguous.store(is_ambiguous, Ordering::SeqCst);
    }

    /// What was sent since it was last asked.
    pub(crate) fn take(&self) -> Vec<Arc<[u8]>> {
        std::mem::take(&mut self.0.sent.lock().unwrap())
    }
}

impl Transport for Post {
    fn largest(&self) -> usize {
        1_024
    }

    async fn send(&self, messages: &[Arc<[u8]>]) -> Result<(), TransportError> {
        let fails = self.0.fails.load(Ordering::SeqCst);
        if !fails || self.0.is_ambiguous.load(Ordering::SeqCst) {
            self.0.sent.lock().unwrap().extend(messages.iter().cloned());
        }
        if fails { Err(TransportError::new("post", "it is closed")) } else { Ok(()) }
    }

    async fn receive(&self) -> Result<Arc<[u8]>, TransportError> {
        std::future::pending().await
    }
}
