//! The handle with which a handler records the true cost of its request.

use std::fmt;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::Extensions;

use crate::{lock, observe};

/// Records the true cost of a request, for policies that [settle by the handler](crate::Settle::by_handler).
///
/// The layer puts it into the request's extensions; with the feature `axum` it is an extractor. Cheap to clone; clones
/// record for the same request, from any task. The handle itself settles nothing: the layer does, when the response's body
/// has ended, by what was recorded by then.
///
/// ```
/// use axum::body::Body;
/// use ratelimit_tower::Charged;
///
/// async fn complete(charged: Charged, prompt: String) -> String {
///     let answer = prompt.to_uppercase(); // ask a model
///     charged.policy("tokens").settle(answer.split_whitespace().count() as u64);
///     answer
/// }
///
/// // Without axum's extractor:
/// fn record(request: &http::Request<Body>) {
///     Charged::of(request.extensions()).settle(7);
/// }
/// # let _ = (complete, record);
/// ```
///
/// - [`settle`](Self::settle) names the whole cost. If you call it again, the last call counts.
/// - [`add`](Self::add) counts while the request is in progress: units per token, per row, per call of another service.
#[derive(Clone, Default)]
pub struct Charged {
    records: Option<Arc<Records>>,
    /// The only policy to record for; all if not set.
    only: Option<Arc<str>>,
}

/// What the handler of one request has recorded, for each policy that settles by it.
#[derive(Default)]
pub(crate) struct Records {
    of_layer: Vec<Record>,
    /// The records of a layer around this one.
    outer: Option<Arc<Records>>,
    /// Whether to be silent about what is recorded after the request was settled.
    silent: AtomicBool,
}

struct Record {
    /// The index of the policy's check.
    place: usize,
    policy: Arc<str>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    recorded: Option<Recorded>,
    settled: bool,
}

/// What a handler has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) units: u64,
    /// Whether these units are the whole cost; otherwise the handler may record more.
    pub(crate) whole: bool,
}

impl Charged {
    /// Returns the handle in the extensions of a request. If there is none, because no policy that settles by the handler
    /// has decided the request, returns a handle that [records nothing](Self::is_empty).
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Puts the handle for these records into a request's extensions, unless there are none.
    pub(crate) fn insert(mut records: Records, extensions: &mut Extensions) -> Option<Arc<Records>> {
        if records.of_layer.is_empty() {
            return None;
        }
        records.outer = Self::of(extensions).records;
        let records = Arc::new(records);
        extensions.insert(Self { records: Some(records.clone()), only: None });
        Some(records)
    }

    /// Returns a handle that records only for the policy of this name. It records nothing if this policy has not decided
    /// the request, or does not settle by the handler.
    #[must_use]
    pub fn policy(&self, name: &str) -> Self {
        match self.each().find(|record| *record.policy == *name) {
            Some(record) => Self { records: self.records.clone(), only: Some(record.policy.clone()) },
            None => Self::default(),
        }
    }

    /// Whether there is no policy to record for.
    pub fn is_empty(&self) -> bool {
        self.each().next().is_none()
    }

    /// Records that the request has cost this many units as a whole. Replaces everything recorded before.
    pub fn settle(&self, units: u64) {
        self.record(|_| Recorded { units, whole: true });
    }

    /// Records this many units more than before. The first call starts from zero, not from the estimate.
    pub fn add(&self, units: u64) {
        self.record(|before| Recorded {
            units: before.map_or(0, |recorded| recorded.units).saturating_add(units),
            whole: false,
        });
    }

    fn record(&self, after: impl Fn(Option<Recorded>) -> Recorded) {
        let mut is_late = false;
        for record in self.each() {
            let mut state = lock(&record.state);
            if state.settled {
                is_late = true;
            } else {
                state.recorded = Some(after(state.recorded));
            }
        }
        if is_late && self.records.as_ref().is_some_and(|records| !records.be_silent()) {
            observe::unsettled(&"the handler recorded units after the request was settled");
        }
    }

    fn each(&self) -> impl Iterator<Item = &Record> {
        let layers = successors(self.records.as_ref(), |records| records.outer.as_ref());
        let only = self.only.as_deref();
        layers
            .flat_map(|records| &records.of_layer)
            .filter(move |record| only.is_none_or(|name| name == &*record.policy))
    }
}

impl Records {
    pub(crate) fn push(&mut self, place: usize, policy: Arc<str>) {
        self.of_layer.push(Record { place, policy, state: Mutex::default() });
    }

    /// From now on, reports nothing that is recorded too late: once is enough, and after a client has disconnected it is to
    /// be expected. Returns whether that was so before.
    pub(crate) fn be_silent(&self) -> bool {
        self.silent.swap(true, Ordering::Relaxed)
    }

    /// Ends recording for the check at this place, and returns what was recorded.
    pub(crate) fn close(&self, place: usize) -> Option<Recorded> {
        let record = self.of_layer.iter().find(|record| record.place == place)?;
        let mut state = lock(&record.state);
        state.settled = true;
        state.recorded
    }
}

impl fmt::Debug for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.each().map(|record| (&record.policy, lock(&record.state).recorded));
        f.debug_map().entries(entries).finish()
    }
}

/// Never fails: without the layer, the handle records nothing.
#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Charged {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_record_counts_until_it_is_closed() {
        let mut records = Records::default();
        records.push(0, "a".into());
        records.push(2, "b".into());
        let mut extensions = Extensions::new();
        assert!(Charged::insert(Records::default(), &mut extensions).is_none());
        assert!(Charged::of(&extensions).is_empty());
        let records = Charged::insert(records, &mut extensions).unwrap();
        let charged = Charged::of(&extensions);
        let both = |charged: &Charged| format!("{charged:?}");
        assert_eq!(both(&charged), r#"{"a": None, "b": None}"#);
        charged.settle(9);
        charged.settle(7);
        charged.policy("b").add(3);
        charged.policy("b").policy("b").add(u64::MAX);
        charged.policy("c").settle(1);
        assert!(charged.policy("c").is_empty() && !charged.is_empty());
        assert_eq!(records.close(1), None);
        assert_eq!(records.close(0), Some(Recorded { units: 7, whole: true }));
        charged.settle(1);
        assert_eq!(records.close(0), Some(Recorded { units: 7, whole: true }));
        charged.settle(2);
        assert_eq!(records.close(2), Some(Recorded { units: 2, whole: true }));
    }

    #[test]
    fn a_layer_inside_another_one_records_for_both() {
        let mut extensions = Extensions::new();
        let mut insert = |policies: &[&str]| {
            let mut records = Records::default();
            policies.iter().enumerate().for_each(|(place, policy)| records.push(place, (*policy).into()));
            Charged::insert(records, &mut extensions).unwrap()
        };
        let (outer, inner) = (insert(&["a", "b"]), insert(&["b"]));
        let charged = Charged::of(&extensions);
        charged.add(1);
        charged.policy("b").add(2);
        let units = |records: &Records, place| records.close(place).unwrap().units;
        assert_eq!([units(&outer, 0), units(&outer, 1), units(&inner, 0)], [1, 3, 3]);
    }
}
