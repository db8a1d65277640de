//! Decisions: what a limiter answers.

use std::fmt;
use std::time::Duration;

use crate::{Answer, Mode, Timestamp, Verdict, Verdicts};

/// What a limiter says of a request: may it pass, and how things stand.
///
/// Where several limits were checked, [`limit`](Self::limit), [`remaining`](Self::remaining) and
/// [`reset_after`](Self::reset_after) are those of the limit that [decided](Self::decided_by): of those that refused,
/// the one that refuses longest; if all admitted, the one with the least remaining. [`each`](Self::each) has them all.
#[derive(Clone, PartialEq, Eq)]
pub struct Decision {
    admitted: bool,
    charged: bool,
    decided_by: usize,
    now: Timestamp,
    verdicts: OneOrMore,
}

/// Nearly always there is one, and then it is no list, so that what nobody reads of it need not be written.
#[derive(Clone, PartialEq, Eq)]
enum OneOrMore {
    One(Verdict),
    More(Verdicts),
}

/// How one of several limits stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    now: Timestamp,
    verdict: Verdict,
}

impl Decision {
    pub(crate) fn new(answer: Answer) -> Self {
        let Answer { admitted, charged, now, verdicts } = answer;
        let (decided_by, verdicts) = match verdicts[..] {
            [verdict] => (0, OneOrMore::One(verdict)),
            _ => (decisive(&verdicts), OneOrMore::More(verdicts)),
        };
        Self { admitted, charged, decided_by, now, verdicts }
    }

    /// The decision on a request of a single claim.
    #[inline]
    pub(crate) fn of_one(now: Timestamp, mode: Mode, admitted: bool, verdict: Verdict) -> Self {
        let (charged, verdicts) = (admitted && mode != Mode::Peek, OneOrMore::One(verdict));
        Self { admitted, charged, decided_by: 0, now, verdicts }
    }

    /// Whether the request may pass.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.admitted
    }

    /// Whether the request was charged: it was allowed, and not just peeked at.
    pub fn charged(&self) -> bool {
        self.charged
    }

    /// The most units that the deciding limit can ever admit at once.
    pub fn limit(&self) -> u64 {
        self.decisive().limit()
    }

    /// Units that the deciding limit would still admit now. Never more than [`limit`](Self::limit).
    pub fn remaining(&self) -> u64 {
        self.decisive().remaining()
    }

    /// How long to wait until the same request would be allowed if nobody else came: zero if it is allowed, `None` if
    /// it never will be because it costs more than a limit can ever admit.
    ///
    /// Waiting exactly so long suffices; a nanosecond less does not.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.admitted { Some(Duration::ZERO) } else { self.decisive().retry_after() }
    }

    /// How long until the deciding limit is as good as new if nobody comes.
    pub fn reset_after(&self) -> Duration {
        self.decisive().reset_after()
    }

    /// How long an admitted request has to wait for its turn. Zero unless the limit is a leaky queue.
    #[inline]
    pub fn delay(&self) -> Duration {
        let waits = self.verdicts().iter().any(|verdict| verdict.ready_at > self.now);
        if !self.admitted || !waits {
            return Duration::ZERO;
        }
        self.verdicts().iter().map(|verdict| verdict.ready_at.since(self.now)).max().unwrap_or_default()
    }

    /// Which limit decided: its place among the limits of the request, in the order in which they were given.
    pub fn decided_by(&self) -> usize {
        self.decided_by
    }

    /// How each limit stands, in the order in which they were given.
    pub fn each(&self) -> impl ExactSizeIterator<Item = LimitStatus> + '_ {
        self.verdicts().iter().map(|verdict| LimitStatus { now: self.now, verdict: *verdict })
    }

    /// The time at which it was decided: the limiter's clock, or the server's.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    #[inline]
    pub(crate) fn verdicts(&self) -> &[Verdict] {
        match &self.verdicts {
            OneOrMore::One(verdict) => std::slice::from_ref(verdict),
            OneOrMore::More(verdicts) => verdicts,
        }
    }

    fn decisive(&self) -> LimitStatus {
        LimitStatus { now: self.now, verdict: self.verdicts()[self.decided_by] }
    }
}

impl LimitStatus {
    /// Whether this limit alone would have admitted the request.
    pub fn allowed(&self) -> bool {
        self.verdict.fits
    }

    /// See [`Decision::limit`].
    pub fn limit(&self) -> u64 {
        self.verdict.limit
    }

    /// See [`Decision::remaining`].
    pub fn remaining(&self) -> u64 {
        self.verdict.remaining
    }

    /// See [`Decision::retry_after`].
    pub fn retry_after(&self) -> Option<Duration> {
        self.verdict.fits_at.map(|instant| instant.since(self.now))
    }

    /// See [`Decision::reset_after`].
    pub fn reset_after(&self) -> Duration {
        self.verdict.reset_at.since(self.now)
    }
}

/// The place of the verdict that decided.
fn decisive(verdicts: &[Verdict]) -> usize {
    let rank = |verdict: &Verdict| {
        // Refused before admitted; never before later before sooner; then the least remaining. The first of equals.
        let wait = if verdict.fits { 0 } else { verdict.fits_at.map_or(u64::MAX, Timestamp::as_nanos) };
        (std::cmp::Reverse((!verdict.fits, wait)), verdict.remaining)
    };
    let first = verdicts.iter().enumerate().min_by_key(|(_, verdict)| rank(verdict));
    first.map_or(0, |(place, _)| place)
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.allowed())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .field("delay", &self.delay())
            .field("decided_by", &self.decided_by)
            .finish()
    }
}

impl fmt::Debug for LimitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitStatus")
            .field("allowed", &self.allowed())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}
