//! The list of what a check has taken and not given back, which a decision and its clones share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::heap::drop_here;
use crate::{Limit, Receipt};

/// The list, once it is needed: at the first call that gives back or renews, or at the first clone. Until then it takes no
/// memory elsewhere, and dropping it takes a comparison. It is boxed because an `Arc` is dropped by its address, which would be
/// one in the decision: then the decision could not stay in registers.
#[derive(Default)]
pub(super) struct SharedList(Mutex<Option<Box<Taken>>>);

/// The list itself.
#[derive(Clone)]
pub(super) struct Taken(Arc<Mutex<Charges>>);

pub(crate) type Charges = SmallVec<[Charge; 2]>;

/// Units that were taken under one limit at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    /// The limit's index in the decision.
    pub(super) limit: usize,
    pub(super) units: u64,
    /// What a refund needs to find them. `None` if no meter counts them: there are more than it can count, or the store has
    /// not answered.
    pub(super) receipt: Option<Receipt>,
    /// The period of the calendar in which they were charged, if they were charged after the decision.
    pub(super) period: Option<Box<Limit>>,
}

impl SharedList {
    /// The list, which `begun` begins if this is the first call.
    pub(super) fn list(&self, begun: impl FnOnce() -> Charges) -> Taken {
        let begun = || Box::new(Taken(Arc::new(Mutex::new(begun()))));
        Taken::clone(self.lock().get_or_insert_with(begun))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Taken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for SharedList {
    /// The same list.
    fn clone(&self) -> Self {
        Self(Mutex::new(self.lock().clone()))
    }
}

impl Taken {
    pub(super) fn lock(&self) -> MutexGuard<'_, Charges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedList {
    #[inline]
    fn drop(&mut self) {
        if let Some(taken) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            drop_here(taken);
        }
    }
}
