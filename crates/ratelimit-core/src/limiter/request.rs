//! Requests: what a limiter checks.

mod build;
mod claims;
mod parts;

use std::borrow::Cow;

use crate::Limits;

/// What to check: a key, its cost, and the limits if they depend on the request.
///
/// A string or byte slice is a request of cost 1 under the limiter's own limits, so most programs never name this type:
///
/// ```
/// use ratelimit_core::{Limits, Request};
///
/// let simple = Request::from("user:7");
/// let weighted = Request::new("user:7").cost(5);
///
/// // Under the limits of the customer's plan, which you have read once:
/// let plan: Limits = "10/s name plan; 10000/day name daily".parse()?;
/// let planned = Request::new("user:7").limits(&plan);
///
/// // Two identifiers under limits of their own, admitted both or not at all:
/// let per_address: Limits = "1000/min name address".parse()?;
/// let both = Request::new("user:7").limits(&plan).and(Request::new("192.0.2.1").limits(&per_address));
/// # let _ = (simple, weighted, planned, both);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `'k` is the lifetime of the keys, which are needed only until there is a decision. `'l` is the lifetime of the
/// limits, which the decision borrows.
#[derive(Clone, Debug)]
pub struct Request<'k, 'l> {
    parts: RequestKeys<'k, 'l>,
}

/// Nearly always there is one part. It is not stored in a list, so that a check takes it in registers.
#[derive(Clone, Debug)]
enum RequestKeys<'k, 'l> {
    One(RequestKey<'k, 'l>),
    Several(Vec<RequestKey<'k, 'l>>),
}

/// One key of a request.
#[derive(Clone)]
struct RequestKey<'k, 'l> {
    key: &'k [u8],
    cost: u64,
    limits: Option<Cow<'l, Limits>>,
}

impl<'k, 'l> Request<'k, 'l> {
    /// A request of one unit for `key`.
    #[inline]
    pub fn new<K: AsRef<[u8]> + ?Sized>(key: &'k K) -> Self {
        Self { parts: RequestKeys::One(RequestKey { key: key.as_ref(), cost: 1, limits: None }) }
    }
}

impl<'k, K: AsRef<[u8]> + ?Sized> From<&'k K> for Request<'k, '_> {
    #[inline]
    fn from(key: &'k K) -> Self {
        Self::new(key)
    }
}

impl<'k, 'l> From<&Request<'k, 'l>> for Request<'k, 'l> {
    #[inline]
    fn from(request: &Request<'k, 'l>) -> Self {
        request.clone()
    }
}

/// The form of most requests: one key and borrowed limits.
#[derive(Clone, Copy)]
pub(super) struct Simple<'k, 'l> {
    pub(super) key: &'k [u8],
    pub(super) cost: u64,
    pub(super) limits: Option<&'l Limits>,
}

impl<'k, 'l> Request<'k, 'l> {
    /// Returns a simple request in its simple form, of which nothing has to be dropped. Returns any other request as `Err`. Unlike
    /// `as_simple().ok_or(self)` it takes the request apart, so that no request is left to be dropped.
    #[inline]
    pub(super) fn into_simple(self) -> Result<Simple<'k, 'l>, Self> {
        match self.parts {
            RequestKeys::One(RequestKey { key, cost, limits }) => match limits {
                None => Ok(Simple { key, cost, limits: None }),
                Some(Cow::Borrowed(limits)) => Ok(Simple { key, cost, limits: Some(limits) }),
                limits => Err(Self { parts: RequestKeys::One(RequestKey { key, cost, limits }) }),
            },
            parts => Err(Self { parts }),
        }
    }

    /// Like [`into_simple`](Self::into_simple), for a request that is still needed.
    #[inline]
    pub(super) fn as_simple(&self) -> Option<Simple<'k, 'l>> {
        match &self.parts {
            RequestKeys::One(RequestKey { key, cost, limits: None }) => {
                Some(Simple { key, cost: *cost, limits: None })
            }
            RequestKeys::One(RequestKey { key, cost, limits: Some(Cow::Borrowed(limits)) }) => {
                Some(Simple { key, cost: *cost, limits: Some(limits) })
            }
            _ => None,
        }
    }
}
