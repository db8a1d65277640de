//! Decisions from a store's answer, on any request.

use super::boxed::{AskedKey, Boxed};
use super::charges::SharedList;
use super::verdicts::{decisive, show_bans};
use super::{Decision, MOST_LIMITS, Parts, ShortKey, ShortParts};
use crate::{Answer, ErrorKind, Limits, StoreError, Verdict};

impl<'l> ShortParts<'l> {
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
        Some(Self { first, others, decided_by, cost, limits, namespace, key, taken: SharedList::default() })
    }
}

impl<'l> Decision<'l> {
    /// The decision on these keys. Their bytes are kept if they were charged.
    ///
    /// # Errors
    /// If the store did not return one verdict for each of their limits.
    pub(crate) fn new<'k>(
        answer: Answer,
        namespace: &'l str,
        keys: impl Iterator<Item = AskedKey<'k, 'l>>,
    ) -> Result<Self, StoreError> {
        let Answer { admitted, charged, now, verdicts } = answer;
        let returned = verdicts.len();
        let parts = Boxed::new(namespace, keys.collect(), verdicts, charged).map_err(|limits| {
            let message = format!("it returned {returned} verdicts for {limits} limits");
            StoreError::new("the store", ErrorKind::Server, message).maybe_applied()
        })?;
        Ok(Self { admitted, charged, now, parts: Parts::Boxed(parts) })
    }
}
