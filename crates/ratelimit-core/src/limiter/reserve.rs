//! Reservations: turns in queues that are taken now and used later.

use std::time::Duration;

use super::{CheckError, RateLimiter, Request};
use crate::{Clock, CounterStore, Decision};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Takes a turn in a queue if it comes within `longest_wait`. The returned decision says when it comes:
    /// [`Decision::delay`]. Otherwise the request is refused and nothing is charged.
    ///
    /// Use this if you do something else until the turn comes; to sleep until then, use
    /// [`acquire_with`](Self::acquire_with). To cancel, call [`refund`](Self::refund) before the turn. Other requests keep
    /// their turns: if somebody has to wait, the units are returned only if nothing was charged after this turn.
    ///
    /// Queues are limits with the option `queue`. Under other limits the request has to fit now. `longest_wait` is rounded
    /// down to a multiple of the time in which one unit leaves the queue.
    ///
    /// The wait counts from the latest instant that the queue has seen. If the clock of another process is ahead of yours,
    /// or your clock was set back, the turn may come later than `longest_wait` by that difference.
    ///
    /// To refuse later turns, the request is checked against a smaller burst. So [`limit`](Decision::limit),
    /// [`remaining`](Decision::remaining) and the [rule](crate::LimitStatus::rule) of the decision are those of the queue
    /// with this burst.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
    /// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
    /// // One a second, the first five at once, up to 60 taken or waiting.
    /// let limiter = RateLimiter::new(store, "1/s queue burst 60 immediate 5".parse::<Limit>()?);
    /// let turn = limiter.reserve("mail", Duration::from_secs(20)).await?;
    /// if turn.allowed() {
    ///     println!("send it in {:?}", turn.delay());
    /// } else {
    ///     println!("no turn within 20 s; try again in {:?}", turn.retry_after());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub async fn reserve<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
        longest_wait: Duration,
    ) -> Result<Decision<'l>, CheckError> {
        self.check(request.into().within(longest_wait, &self.limits)).await
    }
}
