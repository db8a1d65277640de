//! The last known states, within a bound of memory.

use std::collections::HashMap;
use std::fmt;

use ratelimit_core::meter::State;

use crate::Versioned;

/// The last known states of a server's meters, by name. They are guesses, which the server has to confirm.
///
/// It takes about as many bytes as you allow, also if states are long logs. If it is full, it forgets those that were not used
/// for longest: it keeps two generations, and drops the older one when the younger one has half of the bytes.
///
/// ```
/// use ratelimit_core::Limit;
/// use ratelimit_store_kit::{StateCache, Versioned};
///
/// let limit: Limit = "10/s".parse()?;
/// let value = Versioned::new(limit.meter_for(b"user:7").fresh());
/// let mut cache = StateCache::new(1_000_000);
/// cache.set(b"user:7", Some(value.clone()));
/// assert_eq!(cache.get(b"user:7"), Some(&value));
/// cache.set(b"user:7", None);
/// assert_eq!(cache.get(b"user:7"), None);
/// # Ok::<(), ratelimit_core::ParseLimitError>(())
/// ```
pub struct StateCache {
    most: usize,
    young: HashMap<Vec<u8>, Versioned>,
    /// The bytes of the young generation.
    size: usize,
    old: HashMap<Vec<u8>, Versioned>,
}

impl StateCache {
    /// An empty cache of at most about this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { most: bytes, young: HashMap::new(), size: 0, old: HashMap::new() }
    }

    /// The last known state of a meter. `None` if it is not known, or did not exist.
    pub fn get(&mut self, name: &[u8]) -> Option<&Versioned> {
        if let Some((name, value)) = self.old.remove_entry(name) {
            self.put(name, value);
        }
        self.young.get(name).or_else(|| self.old.get(name))
    }

    /// Sets what is known of a meter: its state, or that it does not exist.
    pub fn set(&mut self, name: &[u8], value: Option<Versioned>) {
        self.old.remove(name);
        match value {
            Some(value) => self.put(name.to_vec(), value),
            None => {
                let known = self.young.remove(name);
                self.size -= known.map_or(0, |known| size_of(name.len(), &known.state));
            }
        }
    }

    fn put(&mut self, name: Vec<u8>, value: Versioned) {
        let length = name.len();
        self.size += size_of(length, &value.state);
        let replaced = self.young.insert(name, value);
        self.size -= replaced.map_or(0, |value| size_of(length, &value.state));
        if self.size > self.most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.size = 0;
        }
    }

    /// The number of meters in it.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for StateCache {
    // A derived one would print keys, which may end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateCache of {} meters", self.len())
    }
}

/// About how many bytes an entry takes.
fn size_of(name: usize, state: &State) -> usize {
    let numbers = match state {
        State::Window(state) => state.counts.len(),
        State::Bucket(state) => 3 * state.debts.len(),
        State::Log(state) => state.units.len(),
    };
    128 + name + 8 * numbers
}

#[cfg(test)]
mod tests {
    use ratelimit_core::{Limit, Timestamp};

    use super::*;

    fn log_of(units: u64) -> Versioned {
        let limit: Limit = "1000/h log".parse().expect("a limit");
        let meter = limit.meter_for(b"");
        let mut state = meter.fresh();
        meter.charge(&mut state, units, Timestamp::from_secs(1_000));
        Versioned::new(state)
    }

    #[test]
    fn the_bound_holds_and_what_is_used_stays() {
        let mut cache = StateCache::new(100_000);
        for number in 0_u32..10_000 {
            cache.set(b"used", Some(log_of(1)));
            cache.set(&number.to_be_bytes(), Some(log_of(1)));
            assert!(cache.get(b"used").is_some());
            assert!(cache.len() < 1_000);
        }
        assert!(cache.get(&9_999_u32.to_be_bytes()).is_some());
        assert!(cache.get(&1_u32.to_be_bytes()).is_none());
    }

    #[test]
    fn long_logs_count_for_what_they_take() {
        let mut cache = StateCache::new(100_000);
        for number in 0_u32..100 {
            cache.set(&number.to_be_bytes(), Some(log_of(1_000)));
            assert!(cache.len() <= 14, "{cache:?}");
        }
    }

    #[test]
    fn what_does_not_exist_is_in_no_generation() {
        let mut cache = StateCache::new(1_000);
        cache.set(b"a", Some(log_of(1)));
        for number in 0_u32..3 {
            cache.set(&number.to_be_bytes(), Some(log_of(1)));
        }
        cache.set(b"a", None);
        assert!(cache.get(b"a").is_none());
    }
}
