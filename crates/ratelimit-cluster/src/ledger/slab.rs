//! Slabs: the values that a slot refers to by number.

use ratelimit_core::{LogState, Meter, State};

use super::shared_state::SharedState;
use super::slot::Slot;
use ratelimit_core::kit::OwnedName;

/// Values by number. The numbers of removed values are reused.
pub(super) struct Slab<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

/// The part of a meter that most claims do not need. They need only its [`Slot`].
pub(super) struct Cold {
    pub(super) name: OwnedName,
    /// The hash by which its slot is found.
    pub(super) hash: u64,
    /// The state, if it does not fit the slot.
    large: Option<Box<State>>,
    /// What is kept for counting with a shared store.
    pub(super) shared: Option<Box<SharedState>>,
}

/// The meters of the slots, mostly without duplicates: many keys share few limits.
#[derive(Default)]
#[repr(C)]
pub(super) struct Meters {
    /// The number that was acquired last and its meter, close to the fields that a claim needs first.
    recent: Option<(u32, Meter)>,
    all: Slab<Counted>,
}

/// A meter with the number of slots that refer to it.
struct Counted {
    meter: Meter,
    references: u32,
}

/// How many meters are searched for an equal one. Windows with an offset by key are all different and would not be found.
const SEARCHED: usize = 8;

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            // A shard has fewer slots than that.
            u32::try_from(self.all.len() - 1).expect("fewer values than numbers")
        });
        self.all[number as usize] = Some(value);
        number
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let removed = self.all.get_mut(number as usize)?.take();
        self.free.extend(removed.is_some().then_some(number));
        removed
    }

    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)?.as_ref()
    }

    /// The value with a number that is in use.
    #[inline]
    pub(super) fn at(&self, number: u32) -> &T {
        self.find(number).expect("a slot refers to an existing value")
    }

    /// The value with a number that is in use.
    #[inline]
    pub(super) fn at_mut(&mut self, number: u32) -> &mut T {
        self.all[number as usize].as_mut().expect("a slot refers to an existing value")
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl Cold {
    pub(super) fn new(name: OwnedName, hash: u64) -> Self {
        Self { name, hash, large: None, shared: None }
    }

    /// A copy of the state.
    pub(super) fn state(&self, slot: &Slot) -> State {
        slot.state().unwrap_or_else(|| match &self.large {
            Some(large) => State::clone(large),
            None => State::Log(LogState::default()),
        })
    }

    /// Takes the state out; it has to be put back by `keep_state`.
    pub(super) fn take_state(&mut self, slot: &Slot) -> State {
        slot.state().unwrap_or_else(|| match &mut self.large {
            Some(large) => std::mem::replace(large, State::Log(LogState::default())),
            None => State::Log(LogState::default()),
        })
    }

    /// Stores the state in the slot if it fits, otherwise here.
    pub(super) fn keep_state(&mut self, slot: &mut Slot, state: State) {
        let was_large = slot.is_large();
        if slot.keep(&state) {
            // Otherwise there is nothing to drop.
            if was_large {
                self.large = None;
            }
        } else if let Some(large) = &mut self.large {
            **large = state;
        } else {
            self.large = Some(Box::new(state));
        }
    }
}

impl Meters {
    /// Whether the meter with this number equals `meter`.
    #[inline]
    pub(super) fn is(&self, number: u32, meter: &Meter) -> bool {
        match &self.recent {
            Some((recent, of)) if *recent == number => of == meter,
            _ => self.at(number) == meter,
        }
    }

    #[inline]
    pub(super) fn at(&self, number: u32) -> &Meter {
        &self.all.at(number).meter
    }

    /// The number of a meter, for one more slot.
    pub(super) fn acquire(&mut self, meter: &Meter) -> u32 {
        let mut first = (0..).zip(self.all.all.iter_mut().take(SEARCHED));
        let found = first.find_map(|(number, used)| {
            let used = used.as_mut().filter(|used| used.meter == *meter)?;
            used.references += 1;
            Some(number)
        });
        let number = found.unwrap_or_else(|| self.all.insert(Counted { meter: *meter, references: 1 }));
        self.recent = Some((number, *meter));
        number
    }

    /// Releases the number that a slot no longer uses.
    pub(super) fn release(&mut self, number: u32) {
        let used = self.all.at_mut(number);
        used.references -= 1;
        if used.references == 0 {
            self.all.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::Limit;

    use super::*;

    #[test]
    fn numbers_are_reused() {
        let mut slab = Slab::default();
        assert_eq!(["a", "b", "c"].map(|value| slab.insert(value)), [0, 1, 2]);
        assert_eq!([slab.remove(1), slab.remove(1), slab.remove(7)], [Some("b"), None, None]);
        assert_eq!([slab.insert("d"), slab.insert("e")], [1, 3]);
        assert_eq!((slab.find(1), slab.find(4), *slab.at(3)), (Some(&"d"), None, "e"));
        *slab.at_mut(3) = "f";
        assert_eq!(slab.remove(3), Some("f"));
    }

    #[test]
    fn a_meter_has_one_number_while_it_is_in_use() {
        let mut meters = Meters::default();
        let meter = |quota: usize| format!("{}/min", quota + 1).parse::<Limit>().unwrap().meter_for(b"");
        let numbers: Vec<u32> = (0..SEARCHED).map(|quota| meters.acquire(&meter(quota))).collect();
        for (quota, number) in numbers.iter().enumerate() {
            assert_eq!(meters.acquire(&meter(quota)), *number);
            assert!(meters.is(*number, &meter(quota)) && !meters.is(*number, &meter(quota + 1)));
        }
        let more = meters.acquire(&meter(SEARCHED));
        assert_eq!(*meters.at(more), meter(SEARCHED));
        meters.release(numbers[3]);
        assert!(meters.is(numbers[3], &meter(3)), "another slot still uses it");
        meters.release(numbers[3]);
        assert_eq!(meters.acquire(&meter(77)), numbers[3]);
        assert!(meters.is(numbers[3], &meter(77)));
    }
}
