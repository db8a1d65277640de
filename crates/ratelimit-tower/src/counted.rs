//! A mark in a request's extensions: which policies have counted it. So the layer charges a policy once for a request,
//! however often the layer is around it.

use std::sync::Arc;

use http::Extensions;
use smallvec::SmallVec;

use crate::limiter::Limiter;
use crate::policy_check::PolicyCheck;
use crate::{Head, Policies, observe};

/// The policies that have counted a request so far, of each layer that it has passed.
#[derive(Clone, Default)]
struct Counted(SmallVec<[Counting; 1]>);

/// The policies of one layer that have counted a request.
#[derive(Clone)]
pub(crate) struct Counting {
    limiter: Arc<dyn Limiter>,
    policies: Arc<Policies>,
    places: Places,
}

/// Some of a layer's policies, by their indices.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places(u64);

impl Places {
    /// The policies of these checks.
    pub(crate) fn of(checks: &[PolicyCheck]) -> Self {
        let mut places = Self::default();
        checks.iter().for_each(|check| places.insert(check.policy));
        places
    }

    /// Adds a policy. There are at most as many policies as bits, because each has a limit.
    pub(crate) fn insert(&mut self, place: usize) {
        self.0 |= bit(place);
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, place: usize) -> bool {
        self.0 & bit(place) != 0
    }

    fn each(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |place| self.contains(*place))
    }
}

fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

/// Those of `policies` that have counted this request already, with the same limiter and the same limits.
pub(crate) fn before(limiter: &dyn Limiter, policies: &Policies, request: &Head<'_>) -> Places {
    let mut before = Places::default();
    let Some(Counted(layers)) = request.extensions.get() else { return before };
    for counting in layers.iter().filter(|counting| counting.limiter.id() == limiter.id()) {
        for known in counting.places.each().filter_map(|place| counting.policies.policies.get(place)) {
            let same = policies.policies.iter().position(|policy| policy.name() == known.name());
            match same {
                Some(place) if policies.policies[place].limits() == known.limits() => before.insert(place),
                Some(_) => observe::twins(known.name()),
                None => {}
            }
        }
    }
    before
}

impl Counting {
    pub(crate) fn new(limiter: Arc<dyn Limiter>, policies: &Arc<Policies>, places: Places) -> Self {
        Self { limiter, policies: policies.clone(), places }
    }

    /// Marks a request.
    pub(crate) fn mark(self, extensions: &mut Extensions) {
        extensions.get_or_insert_default::<Counted>().0.push(self);
    }
}
