//! What a program needs from this crate. Every store's crate re-exports it at its root.

#[cfg(feature = "calendar")]
pub use crate::Calendar;
#[cfg(feature = "tokio")]
pub use crate::Permit;
pub use crate::clock::Timer;
#[cfg(feature = "tokio")]
pub use crate::clock::TokioClock;
pub use crate::{
    Acquire, AcquireError, Algorithm, Alignment, CheckError, Clock, CounterStore, Decision, DynCounterStore,
    ErrorKind, Key, Limit, LimitError, LimitStatus, Limits, ManualClock, ParseLimitError, RateLimiter,
    Request, StoreError, SystemClock, Timestamp,
};
