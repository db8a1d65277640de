//! The keys of a request, however many there are.

use std::borrow::Cow;

use super::{Request, RequestKey, RequestKeys, Simple};
use crate::Limits;

impl<'k, 'l> From<Simple<'k, 'l>> for Request<'k, 'l> {
    #[inline]
    fn from(Simple { key, cost, limits }: Simple<'k, 'l>) -> Self {
        Self { parts: RequestKeys::One(RequestKey { key, cost, limits: limits.map(Cow::Borrowed) }) }
    }
}

impl<'k, 'l> Request<'k, 'l> {
    #[inline]
    pub(super) fn parts(&self) -> &[RequestKey<'k, 'l>] {
        match &self.parts {
            RequestKeys::One(part) => std::slice::from_ref(part),
            RequestKeys::Several(parts) => parts,
        }
    }

    #[inline]
    pub(super) fn parts_mut(&mut self) -> &mut [RequestKey<'k, 'l>] {
        match &mut self.parts {
            RequestKeys::One(part) => std::slice::from_mut(part),
            RequestKeys::Several(parts) => parts,
        }
    }
}

impl<'l> RequestKey<'_, 'l> {
    #[inline]
    pub(super) fn limits<'s>(&'s self, default_limits: &'s Limits) -> &'s Limits {
        self.limits.as_deref().unwrap_or(default_limits)
    }
}

impl std::fmt::Debug for RequestKey<'_, '_> {
    /// Keys identify people: shows only the length.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key of {} bytes, cost {}", self.key.len(), self.cost)
    }
}
