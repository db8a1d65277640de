//! The contents of a shard while meters come and go, and when it is due.

use std::collections::HashMap;

use ratelimit_core::store::{MeterId, Receipt, Refund};
use ratelimit_core::{Limit, Timestamp};

use super::upkeep::SWEPT;
use super::*;
use crate::kit::expiry::NEVER;
use crate::table::STRIDE;

const NOW: Timestamp = Timestamp::from_secs(1_000);

/// Calls to a shard, and keys in one. Fewer under Miri, which is slow.
const CALLS: u32 = if cfg!(miri) { 1_000 } else { 100_000 };
const KEYS: u16 = if cfg!(miri) { 200 } else { 10_000 };

/// Decides a claim as the store does.
fn claim(shard: &mut Shard, fingerprint: Fingerprint, demand: Demand<'_>) -> Verdict {
    let Some(place) = shard.find(fingerprint) else { return shard.charge_new(fingerprint, demand).1 };
    let mut slot = *shard.slot(place);
    let Some((admitted, verdict)) = slot.claim(demand) else { return shard.claim_elsewhere(place, demand).1 };
    if admitted {
        shard.charge_slot(place, slot);
    }
    verdict
}

/// A shard that takes fingerprints as arguments, so that they can collide.
struct Driver {
    shard: Shard,
    limit: Limit,
}

impl Driver {
    fn new() -> Self {
        Self { shard: Shard::default(), limit: "100/s burst 100".parse().unwrap() }
    }

    /// All of them have the same home and tag, and one of four lower halves.
    fn fingerprint(key: u16) -> Fingerprint {
        Fingerprint { low: u64::from(key % 4), high: u64::from(key / 4) << 38 }
    }

    fn charge(&mut self, key: u16) -> u64 {
        let id = MeterId { namespace: "n", scope: self.limit.scope(), key: b"" };
        let meter = self.limit.meter_for(id.key);
        let demand = Demand { cost: 1, meter: &meter, now: NOW, mode: Mode::Charge };
        let fingerprint = Self::fingerprint(key);
        claim(&mut self.shard, fingerprint, demand).remaining
    }

    fn reset(&mut self, key: u16) {
        self.shard.reset(Self::fingerprint(key));
    }
}

#[test]
fn meters_keep_their_state_while_others_come_and_go() {
    let (mut driver, mut model) = (Driver::new(), HashMap::new());
    let mut random = 1_u64;
    for _ in 0..CALLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = u16::try_from(random >> 33 & 0x1ff).unwrap();
        if random >> 60 < 8 {
            let left = model.entry(key).or_insert(100_u64);
            *left = left.saturating_sub(1);
            assert_eq!(driver.charge(key), *left);
        } else {
            model.remove(&key);
            driver.reset(key);
        }
        assert_eq!(driver.shard.len(), model.len());
    }
}

#[test]
fn shrink_to_fit_frees_memory_after_a_burst() {
    let mut driver = Driver::new();
    (0..KEYS).for_each(|key| _ = driver.charge(key));
    driver.shard.shrink_to_fit();
    let full = driver.shard.table.end();
    assert!(driver.shard.shrink_to_fit().is_empty());
    let later = Timestamp::from_secs(2_000);
    let mut looks = 0;
    while driver.shard.len() > 0 {
        looks += driver.shard.sweep(8, later);
    }
    assert_eq!((looks, driver.shard.table.end()), (usize::from(KEYS), full));
    driver.charge(3);
    driver.charge(3);
    assert!(!driver.shard.shrink_to_fit().is_empty());
    assert!(driver.shard.table.end() <= 64);
    assert_eq!(driver.charge(3), 97);
}

#[test]
fn due_is_never_after_the_first_expiry_and_sweeps_make_it_exact() {
    let mut random = 1_u64;
    for &most in if cfg!(miri) { &[20][..] } else { &[20, 300, 3_000] } {
        let (mut driver, mut now) = (Driver::new(), NOW);
        for step in 0..CALLS / 5 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = random >> 33;
            // Most homes are one of a few, so that many wrap around the end of the table.
            let fingerprint =
                Fingerprint { low: number % most, high: (u64::from(u32::MAX) - number % 3 * 64) << 32 };
            let text = ["1000/s burst 100", "1000/10s", "1000/min fixed", "1000/min precision 10s"]
                [number as usize % 4];
            let limit: Limit = text.parse().unwrap();
            let id = MeterId { namespace: "n", scope: limit.scope(), key: b"" };
            let (meter, shard) = (limit.meter_for(id.key), &mut driver.shard);
            let demand = Demand { cost: 1 + number / 16 % 50, meter: &meter, now, mode: Mode::Charge };
            match (random >> 20) % 16 {
                0 => shard.reset(fingerprint),
                1 => shard.refund(
                    fingerprint,
                    &Refund { id, cost: demand.cost, meter, receipt: Receipt::at(now) },
                    now,
                ),
                2 => now = now + std::time::Duration::from_millis(number % 3_000),
                3..8 => _ = shard.sweep(8, now),
                8 if step % 64 == 0 => _ = shard.shrink_to_fit(),
                _ => _ = claim(shard, fingerprint, demand),
            }
            assert!(shard.due.second() <= earliest(shard), "{most}, step {step}");
        }
        let rounds = |shard: &mut Shard, now| (0..most).for_each(|_| _ = shard.sweep(8, now));
        rounds(&mut driver.shard, now);
        assert_eq!(driver.shard.due.second(), earliest(&driver.shard), "{most}");
        rounds(&mut driver.shard, now + std::time::Duration::from_secs(1_000));
        assert_eq!((driver.shard.len(), driver.shard.due.second()), (0, NEVER), "{most}");
    }
}

/// When the first of its meters may be removed.
fn earliest(shard: &Shard) -> u32 {
    let taken = (0..shard.table.end()).filter(|place| shard.table.is_taken(*place));
    taken.map(|place| shard.table.slot(place).forget_at).min().unwrap_or(NEVER)
}

#[test]
fn sweeps_pass_a_bounded_number_of_free_places_and_reach_all() {
    let mut driver = Driver::new();
    (0..KEYS).for_each(|key| _ = driver.charge(key));
    let later = Timestamp::from_secs(2_000);
    while driver.shard.len() > 0 {
        driver.shard.sweep(8, later);
    }
    // A meter that has just been visited.
    driver.charge(3);
    while driver.shard.sweep(8, NOW) == 0 {}
    let buckets = driver.shard.table.end() / STRIDE;
    let rounds = (0..).take_while(|_| driver.shard.sweep(8, later) == 0).count();
    assert_eq!((rounds, driver.shard.len()), ((buckets - 1) / SWEPT, 0));
}

#[test]
fn sweeps_visit_at_most_the_requested_number_and_all_in_turn() {
    let mut driver = Driver::new();
    (0..100).for_each(|key| _ = driver.charge(key));
    let later = Timestamp::from_secs(2_000);
    assert_eq!(driver.shard.sweep(8, NOW), 8);
    assert_eq!((driver.shard.sweep(8, later), driver.shard.len()), (8, 92));
    assert_eq!((driver.shard.sweep(1_000, later), driver.shard.len()), (92, 0));
    assert_eq!(driver.shard.sweep(8, later), 0);
}

/// A customer who upgrades has used little of the new limit, and is not evicted as one who has used up the old one is spared.
#[test]
fn a_charge_under_another_limit_changes_how_much_is_used() {
    for (before, after) in [("4/min", "4000/min"), ("4/min burst 4", "4000/min burst 4000")] {
        let mut shard = Shard::default();
        let [before, after] = [before, after].map(|text| text.parse::<Limit>().unwrap().meter_for(b""));
        let fingerprint = Driver::fingerprint(1);
        let mut used = |meter: &Meter| {
            let demand = Demand { cost: 1, meter, now: NOW, mode: Mode::Charge };
            match shard.find_in_slot(fingerprint, meter) {
                Ok((_, slot, _)) => assert!(slot.claim(demand).is_some_and(|(admitted, _)| admitted)),
                Err(Some(place)) => assert!(shard.claim_elsewhere(place, demand).0),
                Err(None) => assert!(shard.charge_new(fingerprint, demand).0),
            }
            shard.slot(shard.find(fingerprint).unwrap()).used()
        };
        assert_eq!([used(&before), used(&before), used(&before)].map(|used| used * 4 / Slot::ALL), [1, 2, 3]);
        assert!(used(&after) < Slot::ALL / 100);
    }
}
