//! Keys as small numbers: each distinct key is stored once.

use std::hash::BuildHasher as _;

use anyhow::Context as _;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Distinct keys, numbered in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    /// The index in `bytes` at which each key ends.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Keys {
    /// The number of a key, which is a new one if the key is not known yet.
    pub(crate) fn number(&mut self, key: &[u8]) -> anyhow::Result<u32> {
        let Self { bytes, ends, numbers, hasher } = self;
        let hash = hasher.hash_one(key);
        if let Some(number) = numbers.find(hash, |number| get(bytes, ends, *number) == key) {
            return Ok(*number);
        }
        let number = u32::try_from(ends.len()).context("there are more than four billion different keys")?;
        bytes.extend_from_slice(key);
        ends.push(bytes.len());
        numbers.insert_unique(hash, number, |number| hasher.hash_one(get(bytes, ends, *number)));
        Ok(number)
    }

    /// The same, but `None` for a new key if this many are known.
    pub(crate) fn number_within(&mut self, key: &[u8], most: usize) -> Option<u32> {
        if self.len() < most {
            return self.number(key).ok();
        }
        self.find(key)
    }

    /// The number of a key, if it is known.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let Self { bytes, ends, numbers, hasher } = self;
        numbers.find(hasher.hash_one(key), |number| get(bytes, ends, *number) == key).copied()
    }

    /// The key with this number; empty if there is none.
    pub(crate) fn get(&self, number: u32) -> &[u8] {
        get(&self.bytes, &self.ends, number)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn get<'b>(bytes: &'b [u8], ends: &[usize], number: u32) -> &'b [u8] {
    let number = number as usize;
    let begin = number.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    ends.get(number).and_then(|end| bytes.get(begin..*end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_number() {
        let mut keys = Keys::default();
        for round in 0..2 {
            for number in 0..10_000_u32 {
                assert_eq!(keys.number(format!("key {number}").as_bytes()).unwrap(), number, "round {round}");
            }
        }
        assert_eq!(keys.number(b"").unwrap(), 10_000);
        assert_eq!(
            (keys.len(), keys.get(9_999), keys.get(10_000), keys.get(10_001)),
            (10_001, &b"key 9999"[..], &b""[..], &b""[..])
        );
        assert_eq!(keys.number_within(b"new", 10_001), None);
        assert_eq!(keys.number_within(b"key 7", 10_001), Some(7));
        assert_eq!(keys.number_within(b"new", 10_002), Some(10_001));
    }
}
