//! Things by number: what a slot refers to.

use ratelimit_core::{LogState, Meter, State};

use super::settle::Shared;
use super::slot::Slot;
use crate::names::Name;

/// Things by number; the numbers of those that were removed are given again.
pub(super) struct Slab<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

/// What is needed of a meter only to tell of it, or if its state is large.
pub(super) struct Cold {
    pub(super) name: Name,
    /// By which its slot is found.
    pub(super) hash: u64,
    /// The state, if it is too large for a slot.
    large: Option<Box<State>>,
    /// For a shared store.
    pub(super) shared: Option<Box<Shared>>,
}

/// How meters count, each once as a rule: many keys are under few limits.
#[derive(Default)]
#[repr(C)]
pub(super) struct Meters {
    /// The number that was taken last, and what it stands for: near to where a claim looks first.
    recent: Option<(u32, Meter)>,
    all: Slab<Used>,
}

struct Used {
    meter: Meter,
    by: u32,
}

/// Among how many a meter is looked for. Windows whose offset is their key's own are all different, and not to be found.
const LOOKED: usize = 8;

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            // There is room for fewer slots than that.
            u32::try_from(self.all.len() - 1).expect("fewer things than numbers")
        });
        self.all[number as usize] = Some(thing);
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

    /// One that is there.
    #[inline]
    pub(super) fn at(&self, number: u32) -> &T {
        self.find(number).expect("a slot refers to what is there")
    }

    /// One that is there.
    #[inline]
    pub(super) fn at_mut(&mut self, number: u32) -> &mut T {
        self.all[number as usize].as_mut().expect("a slot refers to what is there")
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl Cold {
    pub(super) fn new(name: Name, hash: u64) -> Self {
        Self { name, hash, large: None, shared: None }
    }

    /// A copy of the state.
    pub(super) fn state(&self, slot: &Slot) -> State {
        slot.state().unwrap_or_else(|| match &self.large {
            Some(large) => State::clone(large),
            None => State::Log(LogState::default()),
        })
    }

    /// The state, which has to be kept again.
    pub(super) fn take_state(&mut self, slot: &Slot) -> State {
        slot.state().unwrap_or_else(|| match &mut self.large {
            Some(large) => std::mem::replace(large, State::Log(LogState::default())),
            None => State::Log(LogState::default()),
        })
    }

    /// Keeps the state, in the slot or here.
    pub(super) fn keep_state(&mut self, slot: &mut Slot, state: State) {
        let was_large = slot.is_elsewhere();
        if slot.keep(&state) {
            // Otherwise there is nothing to be dropped, and no need to look.
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
    /// Whether it is the one with this number.
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

    /// The number of a meter, for one slot more.
    pub(super) fn take(&mut self, meter: &Meter) -> u32 {
        let mut first = (0..).zip(self.all.all.iter_mut().take(LOOKED));
        let found = first.find_map(|(number, used)| {
            let used = used.as_mut().filter(|used| used.meter == *meter)?;
            used.by += 1;
            Some(number)
        });
        let number = found.unwrap_or_else(|| self.all.insert(Used { meter: *meter, by: 1 }));
        self.recent = Some((number, *meter));
        number
    }

    /// A slot refers to it no more.
    pub(super) fn give_back(&mut self, number: u32) {
        let used = self.all.at_mut(number);
        used.by -= 1;
        if used.by == 0 {
            self.all.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::Limit;

    use super::*;

    #[test]
    fn numbers_are_given_again() {
        let mut slab = Slab::default();
        assert_eq!(["a", "b", "c"].map(|thing| slab.insert(thing)), [0, 1, 2]);
        assert_eq!([slab.remove(1), slab.remove(1), slab.remove(7)], [Some("b"), None, None]);
        assert_eq!([slab.insert("d"), slab.insert("e")], [1, 3]);
        assert_eq!((slab.find(1), slab.find(4), *slab.at(3)), (Some(&"d"), None, "e"));
        *slab.at_mut(3) = "f";
        assert_eq!(slab.remove(3), Some("f"));
    }

    #[test]
    fn a_meter_has_one_number_while_somebody_uses_it() {
        let mut meters = Meters::default();
        let meter = |quota: usize| format!("{}/min", quota + 1).parse::<Limit>().unwrap().meter_for(b"");
        let numbers: Vec<u32> = (0..LOOKED).map(|quota| meters.take(&meter(quota))).collect();
        for (quota, number) in numbers.iter().enumerate() {
            assert_eq!(meters.take(&meter(quota)), *number);
            assert!(meters.is(*number, &meter(quota)) && !meters.is(*number, &meter(quota + 1)));
        }
        let more = meters.take(&meter(LOOKED));
        assert_eq!(*meters.at(more), meter(LOOKED));
        meters.give_back(numbers[3]);
        assert!(meters.is(numbers[3], &meter(3)), "one slot has it still");
        meters.give_back(numbers[3]);
        assert_eq!(meters.take(&meter(77)), numbers[3]);
        assert!(meters.is(numbers[3], &meter(77)));
    }
}
