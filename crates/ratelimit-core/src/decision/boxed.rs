//! What a decision keeps if it is on several keys, a long one, or many or owned limits.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::charges::SharedList;
use super::heap::Heap;
use super::key_bytes::KeyBytes;
use super::verdicts::{decisive, show_bans};
use crate::{Limit, Limits, Verdicts};

/// Any keys under any limits.
#[derive(Clone)]
pub(crate) struct Boxed<'l> {
    pub(super) namespace: &'l str,
    /// The limits of each key, if all of them are borrowed.
    pub(super) limits: Vec<&'l Limits>,
    pub(super) owned: Heap<Owned>,
}

/// The part that borrows nothing. Only this part has drop code, and it does not access borrowed data. So a decision that is
/// no longer used does not keep its limits borrowed.
#[derive(Clone)]
pub(super) struct Owned {
    /// Instead of the borrowed one.
    pub(super) namespace: Option<Box<str>>,
    /// Instead of the borrowed ones.
    pub(super) limits: Vec<Limits>,
    pub(super) keys: Vec<Key>,
    pub(super) decided_by: usize,
    pub(super) verdicts: Verdicts,
    /// What it has taken and not given back, shared with its clones.
    pub(super) taken: SharedList,
}

/// A key of a decision.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) bytes: KeyBytes,
    pub(super) cost: u64,
}

/// A key of a request, to be included in its decision.
pub(crate) struct AskedKey<'k, 'l> {
    pub(crate) bytes: &'k [u8],
    pub(crate) cost: u64,
    pub(crate) limits: Cow<'l, Limits>,
}

/// One limit of a decision, and the key that it was checked for.
pub(super) struct AskedLimit<'d> {
    pub(super) key_index: usize,
    pub(super) cost: u64,
    pub(super) limit: &'d Limit,
}

impl<'l> Boxed<'l> {
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
        let taken = SharedList::default();
        let owned =
            Owned { namespace: None, limits: own_limits, keys: own_keys, decided_by, verdicts, taken };
        Ok(Self { namespace, limits, owned: Heap::new(owned) })
    }
}

impl Boxed<'_> {
    /// The limits of the key at this index.
    pub(super) fn limits(&self, key: usize) -> &Limits {
        self.limits.get(key).copied().unwrap_or_else(|| &self.owned.limits[key])
    }

    pub(super) fn asked_limit(&self, index: usize) -> AskedLimit<'_> {
        let (mut key_index, mut place) = (0, index);
        while place >= self.limits(key_index).len() {
            place -= self.limits(key_index).len();
            key_index += 1;
        }
        AskedLimit { key_index, cost: self.owned.keys[key_index].cost, limit: &self.limits(key_index)[place] }
    }
}
