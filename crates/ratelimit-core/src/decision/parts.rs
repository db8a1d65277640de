//! The parts of a decision: keys, limits, verdicts.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::heap::Heap;
use super::short_key::{KeyBytes, ShortKey};
use crate::limit::Ban;
use crate::{Limit, Limits, Timestamp, Verdict, Verdicts};

/// The keys of a decision, the limits that apply to each, and a verdict for each limit.
///
/// Most decisions are on one short key under borrowed limits. Then nothing has to be dropped, so fields of a decision
/// that are never read are not even written.
#[derive(Clone)]
pub(crate) enum Parts<'l> {
    One(One<'l>),
    Few(Few<'l>),
    Any(Any<'l>),
}

/// One short key under one limit.
#[derive(Clone, Copy)]
pub(crate) struct One<'l> {
    verdict: Verdict,
    cost: u64,
    limit: &'l Limit,
    namespace: &'l str,
    key: ShortKey,
}

/// How many limits count as few.
const FEW: usize = 4;

/// One short key under a few limits.
#[derive(Clone, Copy)]
pub(crate) struct Few<'l> {
    /// As many as there are limits.
    verdicts: [Verdict; FEW],
    decided_by: usize,
    cost: u64,
    limits: &'l Limits,
    namespace: &'l str,
    key: ShortKey,
}

/// Anything else.
#[derive(Clone)]
pub(crate) struct Any<'l> {
    namespace: &'l str,
    /// The limits of each key, if all of them are borrowed.
    limits: Vec<&'l Limits>,
    owned: Heap<Owned>,
}

/// The part that borrows nothing. Only this part has drop code, and it does not access borrowed data. So a decision that is
/// no longer used does not keep its limits borrowed.
#[derive(Clone)]
struct Owned {
    /// Instead of the borrowed one.
    namespace: Option<Box<str>>,
    /// Instead of the borrowed ones.
    limits: Vec<Limits>,
    keys: Vec<Key>,
    decided_by: usize,
    verdicts: Verdicts,
}

/// A key of a decision.
#[derive(Clone)]
struct Key {
    bytes: KeyBytes,
    cost: u64,
}

/// A key of a request, to be included in its decision.
pub(crate) struct AskedKey<'k, 'l> {
    pub(crate) bytes: &'k [u8],
    pub(crate) cost: u64,
    pub(crate) limits: Cow<'l, Limits>,
}

/// One limit of a decision, and the key that it was checked for.
pub(super) struct Claimed<'d> {
    pub(super) key_index: usize,
    pub(super) cost: u64,
    pub(super) limit: &'d Limit,
}

impl<'l> Parts<'l> {
    /// Keeps the keys' bytes only if they were charged; otherwise they are not needed.
    ///
    /// Returns `Err` with the number of limits if there is not one verdict for each.
    pub(super) fn new<'k>(
        namespace: &'l str,
        keys: SmallVec<[AskedKey<'k, 'l>; 1]>,
        mut verdicts: Verdicts,
        charged: bool,
    ) -> Result<Self, usize> {
        let count = keys.iter().map(|key| key.limits.len()).sum();
        if verdicts.len() != count {
            return Err(count);
        }
        show_bans(keys.iter().flat_map(|key| key.limits.iter()), &mut verdicts);
        let bytes = |key: &AskedKey<'k, 'l>| KeyBytes::from_slice(if charged { key.bytes } else { &[] });
        let own_keys = keys.iter().map(|key| Key { bytes: bytes(key), cost: key.cost }).collect();
        let lent = |key: &AskedKey<'k, 'l>| match key.limits {
            Cow::Borrowed(limits) => Some(limits),
            Cow::Owned(_) => None,
        };
        let (limits, own_limits) = match keys.iter().map(lent).collect::<Option<_>>() {
            Some(lent) => (lent, Vec::new()),
            None => (Vec::new(), keys.into_iter().map(|key| key.limits.into_owned()).collect()),
        };
        let decided_by = decisive(&verdicts);
        let owned = Owned { namespace: None, limits: own_limits, keys: own_keys, decided_by, verdicts };
        Ok(Self::Any(Any { namespace, limits, owned: Heap::new(owned) }))
    }

    /// The parts if one short key was checked under one to four borrowed limits.
    pub(crate) fn few(
        namespace: &'l str,
        key: ShortKey,
        cost: u64,
        limits: &'l Limits,
        verdicts: &[Verdict],
    ) -> Option<Self> {
        match (&**limits, verdicts) {
            ([limit], [verdict]) if !limit.is_ban() => Some(Self::one(namespace, key, cost, limit, *verdict)),
            (all, [first, ..]) if verdicts.len() == all.len() && all.len() <= FEW => {
                let mut few = [*first; FEW];
                few[..all.len()].copy_from_slice(verdicts);
                show_bans(all.iter(), &mut few);
                let decided_by = decisive(&few[..all.len()]);
                Some(Self::Few(Few { verdicts: few, decided_by, cost, limits, namespace, key }))
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn one(
        namespace: &'l str,
        key: ShortKey,
        cost: u64,
        limit: &'l Limit,
        verdict: Verdict,
    ) -> Self {
        Self::One(One { verdict, cost, limit, namespace, key })
    }

    pub(super) fn into_owned(self) -> Parts<'static> {
        let namespace = Some(self.namespace().into());
        let verdicts = self.verdicts().into();
        let (limits, keys, decided_by) = match &self {
            Self::One(One { cost, limit, key, .. }) => {
                (vec![Limits::from((*limit).clone())], vec![Key { bytes: key.bytes(), cost: *cost }], 0)
            }
            Self::Few(Few { decided_by, cost, limits, key, .. }) => {
                (vec![(*limits).clone()], vec![Key { bytes: key.bytes(), cost: *cost }], *decided_by)
            }
            Self::Any(any) => {
                let limits = (0..any.owned.keys.len()).map(|key| any.limits(key).clone());
                (limits.collect(), any.owned.keys.clone(), any.owned.decided_by)
            }
        };
        let owned = Owned { namespace, limits, keys, decided_by, verdicts };
        Parts::Any(Any { namespace: "", limits: Vec::new(), owned: Heap::new(owned) })
    }

    #[inline]
    pub(super) fn verdicts(&self) -> &[Verdict] {
        match self {
            Self::One(one) => std::slice::from_ref(&one.verdict),
            Self::Few(few) => &few.verdicts[..few.limits.len()],
            Self::Any(any) => &any.owned.verdicts,
        }
    }

    /// Replaces a verdict, and determines again which one decides.
    pub(super) fn set_verdict(&mut self, index: usize, verdict: Verdict) {
        if let Some(place) = self.verdict_mut(index) {
            *place = verdict;
        }
        match self {
            Self::One(_) => {}
            Self::Few(few) => few.decided_by = decisive(&few.verdicts[..few.limits.len()]),
            Self::Any(any) => any.owned.decided_by = decisive(&any.owned.verdicts),
        }
    }

    pub(super) fn verdict_mut(&mut self, index: usize) -> Option<&mut Verdict> {
        match self {
            Self::One(one) => (index == 0).then_some(&mut one.verdict),
            Self::Few(few) => few.verdicts[..few.limits.len()].get_mut(index),
            Self::Any(any) => any.owned.verdicts.get_mut(index),
        }
    }

    #[inline]
    pub(super) fn decided_by(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Few(few) => few.decided_by,
            Self::Any(any) => any.owned.decided_by,
        }
    }

    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::One(one) => one.namespace,
            Self::Few(few) => few.namespace,
            Self::Any(any) => any.owned.namespace.as_deref().unwrap_or(any.namespace),
        }
    }

    /// The limit at this index. There is one for each verdict.
    #[inline]
    pub(super) fn claimed(&self, index: usize) -> Claimed<'_> {
        match self {
            Self::One(one) => Claimed { key_index: 0, cost: one.cost, limit: one.limit },
            Self::Few(few) => Claimed { key_index: 0, cost: few.cost, limit: &few.limits[index] },
            Self::Any(any) => any.claimed(index),
        }
    }

    /// The largest cost of a key.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::One(one) => one.cost,
            Self::Few(few) => few.cost,
            Self::Any(any) => any.owned.keys.iter().map(|key| key.cost).max().unwrap_or(0),
        }
    }

    /// The bytes of each key. They are empty if the decision was not charged.
    pub(super) fn keys(&self) -> SmallVec<[KeyBytes; 1]> {
        match self {
            Self::One(one) => [one.key.bytes()].into(),
            Self::Few(few) => [few.key.bytes()].into(),
            Self::Any(any) => any.owned.keys.iter().map(|key| key.bytes.clone()).collect(),
        }
    }
}

impl Any<'_> {
    /// The limits of the key at this index.
    fn limits(&self, key: usize) -> &Limits {
        self.limits.get(key).copied().unwrap_or_else(|| &self.owned.limits[key])
    }

    fn claimed(&self, index: usize) -> Claimed<'_> {
        let (mut key_index, mut place) = (0, index);
        while place >= self.limits(key_index).len() {
            place -= self.limits(key_index).len();
            key_index += 1;
        }
        Claimed { key_index, cost: self.owned.keys[key_index].cost, limit: &self.limits(key_index)[place] }
    }
}

/// Changes the verdicts of bans to what a decision shows.
fn show_bans<'l>(limits: impl Iterator<Item = &'l Limit>, verdicts: &mut [Verdict]) {
    for (limit, verdict) in limits.zip(verdicts) {
        if limit.is_ban() {
            *verdict = Ban::shown(verdict);
        }
    }
}

/// The index of the verdict that decided.
fn decisive(verdicts: &[Verdict]) -> usize {
    let rank = |verdict: &Verdict| {
        // Refusals come first: those that never fit, then those with the longest wait. Then the least remaining decides,
        // and at last the order of the limits.
        let wait = if verdict.fits { 0 } else { verdict.fits_at.map_or(u64::MAX, Timestamp::as_nanos) };
        (std::cmp::Reverse((!verdict.fits, wait)), verdict.remaining)
    };
    let first = verdicts.iter().enumerate().min_by_key(|(_, verdict)| rank(verdict));
    first.map_or(0, |(place, _)| place)
}
