//! Decisions without borrows.

use super::boxed::{Boxed, Key, Owned};
use super::heap::Heap;
use super::key_bytes::KeyBytes;
use super::{Decision, Parts, ShortParts};

impl Decision<'_> {
    /// Returns the same decision without borrows, so you can keep it for as long as you like: in a struct, for a task, and for
    /// an HTTP request's extensions. The type of what you keep is `Decision<'static>`.
    ///
    /// ```
    /// # use ratelimit_core::{CheckError, CounterStore, Decision, RateLimiter};
    /// struct Job {
    ///     decision: Decision<'static>,
    /// }
    ///
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<Job, CheckError> {
    /// let decision = limiter.check("user:7").await?;
    /// Ok(Job { decision: decision.into_owned() })
    /// # }
    ///
    /// # use std::sync::Arc;
    /// # fn spawn(_: impl Future<Output = ()> + Send + 'static) {}
    /// # async fn in_a_task(limiter: Arc<RateLimiter<impl CounterStore + 'static>>) -> Result<(), CheckError> {
    /// let decision = limiter.check("user:7").await?.into_owned();
    /// let limiter = limiter.clone();
    /// spawn(async move {
    ///     let _ = limiter.settle(&decision, 370).await;
    /// });
    /// # Ok(())
    /// # }
    /// # struct Extensions;
    /// # impl Extensions { fn insert<T: Clone + Send + Sync + 'static>(&mut self, _: T) {} }
    /// # async fn in_extensions(limiter: RateLimiter<impl CounterStore>, extensions: &mut Extensions) -> Result<(), CheckError> {
    /// let decision = limiter.check("user:7").await?;
    /// extensions.insert(decision.into_owned());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_owned(self) -> Decision<'static> {
        let Self { admitted, charged, now, parts } = self;
        Decision { admitted, charged, now, parts: parts.into_owned() }
    }
}

impl Parts<'_> {
    fn into_owned(self) -> Parts<'static> {
        let namespace = Some(self.namespace().into());
        let (verdicts, decided_by) = (self.verdicts().copied().collect(), self.decided_by());
        let (limits, keys) = match &self {
            Self::Short(ShortParts { cost, limits, key, .. }) => {
                let key = Key { bytes: KeyBytes::from_slice(key.bytes()), cost: *cost };
                (vec![(*limits).clone()], vec![key])
            }
            Self::Boxed(boxed) => {
                let limits = (0..boxed.owned.keys.len()).map(|key| boxed.limits(key).clone());
                (limits.collect(), boxed.owned.keys.clone())
            }
        };
        let owned = Owned { namespace, limits, keys, decided_by, verdicts, taken: self.taken().clone() };
        Parts::Boxed(Boxed { namespace: "", limits: Vec::new(), owned: Heap::new(owned) })
    }
}
