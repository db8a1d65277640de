//! What the slots of a shard refer to by number: the cold parts of meters, and the meters' limits.

use ratelimit_core::kit::OwnedName;
use ratelimit_core::meter::Meter;
use ratelimit_memory::kit::Slab;

use super::shared_state::SharedState;

/// The part of a meter that most claims do not need. They need only its [`Slot`](super::slot::Slot).
pub(super) struct Cold {
    pub(super) name: OwnedName,
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
        let known = self.all.first(SEARCHED).find(|(_, known)| known.meter == *meter);
        let number = match known.map(|(number, _)| number) {
            Some(number) => {
                self.all.at_mut(number).references += 1;
                number
            }
            None => self.all.insert(Counted { meter: *meter, references: 1 }),
        };
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
