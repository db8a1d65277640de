//! A box that is dropped by a function call.

use std::ops::{Deref, DerefMut};

/// A box that is dropped by a function call. Dropping a value that contains one therefore takes only a few instructions
/// where it happens, and the optimizer sees that the other fields are not read.
#[derive(Clone)]
pub(crate) struct Heap<T>(Option<Box<T>>);

impl<T> Heap<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<T> Deref for Heap<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("it is taken only when it is dropped"),
        }
    }
}

impl<T> DerefMut for Heap<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(value) => value,
            None => unreachable!("it is taken only when it is dropped"),
        }
    }
}

impl<T> Drop for Heap<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            let_go(value);
        }
    }
}

#[cold]
#[inline(never)]
pub(super) fn let_go<T>(value: T) {
    drop(value);
}
