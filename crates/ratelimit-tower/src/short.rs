//! A byte buffer that needs no allocation while it is short.

/// A byte buffer; up to `SHORT` bytes need no allocation.
#[derive(Clone)]
pub(crate) struct ShortBytes<const SHORT: usize> {
    short: [u8; SHORT],
    length: usize,
    /// All of the bytes, once they do not fit in `short`.
    long: Vec<u8>,
}

impl<const SHORT: usize> ShortBytes<SHORT> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { short: [0; SHORT], length: 0, long: Vec::new() }
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        match self.short.get_mut(self.length..end) {
            Some(free) => free.copy_from_slice(bytes),
            None => self.append_long(bytes),
        }
        self.length = end;
    }

    /// Copies `other` into this empty buffer. Short contents are copied as a whole, without a function call.
    #[inline]
    pub(crate) fn begin_with(&mut self, other: &Self) {
        if other.length <= SHORT {
            self.short = other.short;
            self.length = other.length;
        } else {
            self.append(&other.long);
        }
    }

    /// Appends an array in one piece, since its length is known at compile time.
    #[inline]
    pub(crate) fn append_array<const N: usize>(&mut self, bytes: &[u8; N]) {
        match self.short.get_mut(self.length..).and_then(|free| free.first_chunk_mut::<N>()) {
            Some(free) => {
                *free = *bytes;
                self.length += N;
            }
            None => self.append(bytes),
        }
    }

    #[cold]
    fn append_long(&mut self, bytes: &[u8]) {
        if self.length <= SHORT {
            self.long.extend_from_slice(&self.short[..self.length]);
        }
        self.long.extend_from_slice(bytes);
    }

    /// Keeps the first `length` bytes; there must be at least as many.
    pub(crate) fn truncate(&mut self, length: usize) {
        if self.length > SHORT {
            self.long.truncate(length);
            if let Some(short) = self.short.get_mut(..length) {
                short.copy_from_slice(&self.long);
                self.long.clear();
            }
        }
        self.length = length;
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.short.get(..self.length).unwrap_or(&self.long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn short_bytes_equal_what_was_appended_and_not_truncated(
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..70), any::<prop::sample::Index>()), 0..9)
        ) {
            let (mut bytes, mut expected) = (ShortBytes::<48>::new(), Vec::new());
            for (part, keep) in steps {
                match part.first_chunk::<20>() {
                    Some(array) => {
                        bytes.append_array(array);
                        expected.extend_from_slice(array);
                    }
                    None => {
                        bytes.append(&part);
                        expected.extend_from_slice(&part);
                    }
                }
                prop_assert_eq!(bytes.as_bytes(), &expected);
                if expected.len().is_multiple_of(3) {
                    let length = keep.index(expected.len() + 1);
                    bytes.truncate(length);
                    expected.truncate(length);
                }
                prop_assert_eq!(bytes.as_bytes(), &expected);
                prop_assert_eq!((bytes.len(), bytes.is_empty()), (expected.len(), expected.is_empty()));
                let mut same = ShortBytes::<48>::new();
                same.begin_with(&bytes);
                same.append(b"more");
                prop_assert_eq!(same.as_bytes(), &[&expected[..], b"more"].concat());
            }
        }
    }
}
