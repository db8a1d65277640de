//! The times, keys and costs of all requests, to decide them again without reading the log again.

use ratelimit_core::Timestamp;

use super::keys::Keys;

/// The times and costs of all requests, key by key, and the keys. For each request it takes 12 bytes while the log is
/// read, 20 for a moment while it is sorted by key, and 8 afterwards; if a cost is not one, 8, 16 and 8 more.
#[derive(Debug, Default)]
pub struct Trace {
    by: String,
    keys: Keys,
    times: Vec<u64>,
    numbers: Vec<u32>,
    /// Empty if all costs are one.
    costs: Vec<u64>,
    /// The index in `times` at which each key begins, once they are sorted.
    begins: Vec<usize>,
}

/// The requests of one key, in the order of their times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedKey<'a> {
    pub(crate) key: &'a [u8],
    times: &'a [u64],
    costs: &'a [u64],
}

impl<'a> TracedKey<'a> {
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Timestamp, u64)> + use<'a> {
        let costs = self.costs.iter().copied().chain(std::iter::repeat(1));
        self.times.iter().copied().map(Timestamp::from_nanos).zip(costs)
    }

    pub(crate) fn len(&self) -> u64 {
        self.times.len() as u64
    }

    /// The sum of the costs of its requests.
    pub(crate) fn cost(&self) -> u64 {
        if self.costs.is_empty() {
            return self.len();
        }
        self.costs.iter().fold(0, |sum, cost| sum.saturating_add(*cost))
    }
}

impl Trace {
    pub(super) fn add(&mut self, time: Timestamp, number: u32, cost: u64) {
        if self.costs.is_empty() && cost != 1 {
            self.costs.resize(self.times.len(), 1);
        }
        if cost != 1 || !self.costs.is_empty() {
            self.costs.push(cost);
        }
        self.times.push(time.as_nanos());
        self.numbers.push(number);
    }

    /// The same trace sorted by key. Requests of the same key keep their order.
    pub(super) fn with_keys(self, by: String, keys: Keys) -> Self {
        let mut begins = vec![0_usize; keys.len() + 1];
        for number in &self.numbers {
            if let Some(count) = begins.get_mut(*number as usize + 1) {
                *count += 1;
            }
        }
        let mut before = 0;
        for begin in &mut begins {
            before += *begin;
            *begin = before;
        }
        let times = scatter(&self.times, &self.numbers, &begins);
        let costs = scatter(&self.costs, &self.numbers, &begins);
        Self { by, keys, times, numbers: Vec::new(), costs, begins }
    }

    /// What its requests are counted by: what the keys were made of.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The number of requests of all keys.
    pub(crate) fn requests(&self) -> u64 {
        self.times.len() as u64
    }

    /// The keys that have requests, each with its requests.
    pub(crate) fn each(&self) -> impl Iterator<Item = TracedKey<'_>> {
        let ranges = self.begins.iter().zip(self.begins.iter().skip(1));
        (0..).zip(ranges).filter(|(_, (begin, end))| begin < end).map(|(number, (begin, end))| TracedKey {
            key: self.keys.get(number),
            times: self.times.get(*begin..*end).unwrap_or_default(),
            costs: self.costs.get(*begin..*end).unwrap_or_default(),
        })
    }
}

/// Sorts values by the keys of their requests: each comes after the earlier ones of the same key. `begins` has the index
/// at which each key begins.
fn scatter(values: &[u64], numbers: &[u32], begins: &[usize]) -> Vec<u64> {
    let mut next = begins.to_vec();
    let mut sorted = vec![0; values.len()];
    for (value, number) in values.iter().zip(numbers) {
        if let Some(place) = next.get_mut(*number as usize) {
            if let Some(slot) = sorted.get_mut(*place) {
                *slot = *value;
            }
            *place += 1;
        }
    }
    sorted
}
