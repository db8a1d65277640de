//! The parts of a decision: keys, limits, verdicts.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::heap::Heap;
use super::short_key::{ChargedKeys, KeyBytes, ShortKey};
use crate::limit::Ban;
use crate::{Limit, Limits, Timestamp, Verdict, Verdicts};

/// The keys of a decision, the limits that apply to each, and a verdict for each limit.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and is to need no allocation")]
pub(crate) enum Parts<'l> {
    /// Those of most decisions take no memory elsewhere.
    InPlace(InPlace<'l>),
    Boxed(Boxed<'l>),
}

/// One short key under up to four borrowed limits.
#[derive(Clone, Copy)]
pub(crate) struct InPlace<'l> {
    /// The verdict of the first limit.
    first: Verdict,
    /// Those of the others, if there are any; as many as there are other limits.
    others: Option<[Verdict; MOST_LIMITS - 1]>,
    decided_by: usize,
    cost: u64,
    limits: &'l Limits,
    namespace: &'l str,
    key: ShortKey,
}

/// How many limits a decision has in place.
const MOST_LIMITS: usize = 4;

/// Any keys under any limits.
#[derive(Clone)]
pub(crate) struct Boxed<'l> {
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
        let kept = |key: &AskedKey<'k, 'l>| if charged { key.bytes } else { &[] };
        let own_keys = |key| Key { bytes: KeyBytes::from_slice(kept(key)), cost: key.cost };
        let own_keys = keys.iter().map(own_keys).collect();
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
        Ok(Self::Boxed(Boxed { namespace, limits, owned: Heap::new(owned) }))
    }

    pub(super) fn into_owned(self) -> Parts<'static> {
        let namespace = Some(self.namespace().into());
        let (verdicts, decided_by) = (self.verdicts().copied().collect(), self.decided_by());
        let (limits, keys) = match &self {
            Self::InPlace(InPlace { cost, limits, key, .. }) => {
                let key = Key { bytes: KeyBytes::from_slice(key.bytes()), cost: *cost };
                (vec![(*limits).clone()], vec![key])
            }
            Self::Boxed(boxed) => {
                let limits = (0..boxed.owned.keys.len()).map(|key| boxed.limits(key).clone());
                (limits.collect(), boxed.owned.keys.clone())
            }
        };
        let owned = Owned { namespace, limits, keys, decided_by, verdicts };
        Parts::Boxed(Boxed { namespace: "", limits: Vec::new(), owned: Heap::new(owned) })
    }

    /// The number of limits.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            Self::InPlace(parts) => parts.limits.len(),
            Self::Boxed(parts) => parts.owned.verdicts.len(),
        }
    }

    /// The verdicts, one for each limit.
    #[inline]
    pub(super) fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        (0..self.count()).map(|index| self.verdict(index))
    }

    /// The verdict at this index.
    #[inline]
    pub(super) fn verdict(&self, index: usize) -> &Verdict {
        match self {
            Self::InPlace(InPlace { others: Some(others), .. }) if index > 0 => &others[index - 1],
            Self::InPlace(InPlace { first, .. }) => first,
            Self::Boxed(parts) => &parts.owned.verdicts[index],
        }
    }

    /// Replaces a verdict, and determines again which one decides.
    pub(super) fn set_verdict(&mut self, index: usize, verdict: Verdict) {
        match self {
            Self::InPlace(InPlace { others: Some(others), .. }) if index > 0 => others[index - 1] = verdict,
            Self::InPlace(InPlace { first, .. }) => *first = verdict,
            Self::Boxed(parts) => parts.owned.verdicts[index] = verdict,
        }
        let decided_by = decisive(self.verdicts());
        match self {
            Self::InPlace(parts) => parts.decided_by = decided_by,
            Self::Boxed(parts) => parts.owned.decided_by = decided_by,
        }
    }

    #[inline]
    pub(super) fn decided_by(&self) -> usize {
        match self {
            Self::InPlace(parts) => parts.decided_by,
            Self::Boxed(parts) => parts.owned.decided_by,
        }
    }

    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::InPlace(parts) => parts.namespace,
            Self::Boxed(parts) => parts.owned.namespace.as_deref().unwrap_or(parts.namespace),
        }
    }

    /// The limit at this index. There is one for each verdict.
    #[inline]
    pub(super) fn claimed(&self, index: usize) -> Claimed<'_> {
        match self {
            Self::InPlace(parts) => Claimed { key_index: 0, cost: parts.cost, limit: &parts.limits[index] },
            Self::Boxed(parts) => parts.claimed(index),
        }
    }

    /// The largest cost of a key.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::InPlace(parts) => parts.cost,
            Self::Boxed(parts) => parts.owned.keys.iter().map(|key| key.cost).max().unwrap_or(0),
        }
    }

    /// The bytes of each key. They are empty if the decision was not charged.
    pub(super) fn keys(&self) -> ChargedKeys {
        match self {
            Self::InPlace(parts) => [KeyBytes::from_slice(parts.key.bytes())].into(),
            Self::Boxed(parts) => parts.owned.keys.iter().map(|key| key.bytes.clone()).collect(),
        }
    }
}

impl<'l> InPlace<'l> {
    /// `None` if there are too many limits, or if there is not one verdict for each.
    #[inline]
    pub(crate) fn new(
        namespace: &'l str,
        key: ShortKey,
        cost: u64,
        limits: &'l Limits,
        verdicts: &[Verdict],
    ) -> Option<Self> {
        let (first, rest) = verdicts.split_first().filter(|_| verdicts.len() == limits.len())?;
        let (mut first, mut others) = (*first, [*first; MOST_LIMITS - 1]);
        let rest_of_them = others.get_mut(..rest.len())?;
        rest_of_them.copy_from_slice(rest);
        show_bans(limits.iter(), std::iter::once(&mut first).chain(&mut *rest_of_them));
        let decided_by = decisive(std::iter::once(&first).chain(&*rest_of_them));
        let others = (!rest.is_empty()).then_some(others);
        Some(Self { first, others, decided_by, cost, limits, namespace, key })
    }

    /// Under one limit, which is no ban.
    #[inline(always)]
    pub(crate) fn one(
        namespace: &'l str,
        key: ShortKey,
        cost: u64,
        limits: &'l Limits,
        verdict: Verdict,
    ) -> Self {
        Self { first: verdict, others: None, decided_by: 0, cost, limits, namespace, key }
    }
}

impl Boxed<'_> {
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
fn show_bans<'l, 'v>(
    limits: impl Iterator<Item = &'l Limit>,
    verdicts: impl IntoIterator<Item = &'v mut Verdict>,
) {
    for (limit, verdict) in limits.zip(verdicts) {
        if limit.is_ban() {
            *verdict = Ban::shown(verdict);
        }
    }
}

/// The index of the verdict that decided.
fn decisive<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> usize {
    let rank = |verdict: &Verdict| {
        // Refusals come first: those that never fit, then those with the longest wait. Then the least remaining decides,
        // and at last the order of the limits.
        let wait = if verdict.fits { 0 } else { verdict.fits_at.map_or(u64::MAX, Timestamp::as_nanos) };
        (std::cmp::Reverse((!verdict.fits, wait)), verdict.remaining)
    };
    let first = verdicts.into_iter().enumerate().min_by_key(|(_, verdict)| rank(verdict));
    first.map_or(0, |(place, _)| place)
}
