//! Tables while meters come and go.

use std::collections::HashMap;

use super::change::SMALL;
use super::*;
use crate::kit::CompactState;

/// Inserts and removes meters at random, and compares the table with a map.
fn compare(fingerprints: impl Fn(u32) -> Fingerprint, keys: u32, steps: u32) {
    let steps = if cfg!(miri) { steps / 50 } else { steps };
    let (mut table, mut model) = (Table::default(), HashMap::new());
    let mut random = 1_u64;
    for step in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // First more are inserted than removed, later the other way round.
        let key = u32::try_from(random >> 33).unwrap() % keys;
        let comes = (random >> 20) % 8 < if step < steps / 2 { 6 } else { 2 };
        let (fingerprint, found) = (fingerprints(key), table.find(fingerprints(key)));
        assert_eq!(found.map(|place| table.slot(place).forget_at), model.get(&key).copied(), "{key}");
        match found {
            None if comes => {
                let place = table.insert(fingerprint, Slot::new(fingerprint, CompactState::default()));
                table.slot_mut(place).forget_at = step;
                model.insert(key, step);
            }
            Some(place) if !comes => {
                table.remove(place);
                model.remove(&key);
                if step % 64 == 0 {
                    table.shrink_to_fit();
                }
            }
            _ => {}
        }
        assert_eq!(table.len(), model.len());
    }
    let mut taken = Vec::new();
    let mut place = 0;
    while place < table.end() {
        let found = table.taken_from(place, 3);
        taken.extend(found.ok());
        place = found.map_or_else(|after| after, |found| found + 1);
    }
    let all: Vec<SlotIndex> = (0..table.end()).filter(|place| table.is_taken(*place)).collect();
    assert_eq!((all.len(), taken), (model.len(), all));
    for (key, step) in model {
        assert_eq!(table.find(fingerprints(key)).map(|place| table.slot(place).forget_at), Some(step));
    }
}

#[test]
fn meters_are_found_after_insertions_and_removals() {
    let spread = |key: u32| Fingerprint {
        low: key.into(),
        high: u64::from(key.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(key.wrapping_mul(0x85eb_ca6b)),
    };
    compare(spread, 3_000, 100_000);
    compare(spread, 20, 20_000);
}

#[test]
fn colliding_meters_are_found() {
    compare(|key| Fingerprint { low: key.into(), high: u64::from(key / 50) << 32 }, 400, 50_000);
    compare(
        |key| Fingerprint { low: key.into(), high: u64::from(u32::MAX - key % 2 * 64) << 32 },
        400,
        50_000,
    );
    compare(
        |key| Fingerprint { low: 7, high: u64::from(key << 20) << 32 | u64::from(key << 24) },
        400,
        50_000,
    );
}

#[test]
fn a_growing_table_has_few_idle_slots() {
    let mut table = Table::default();
    for key in 0..if cfg!(miri) { 500 } else { 10_000_u32 } {
        let fingerprint = Fingerprint {
            low: key.into(),
            high: u64::from(key.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(key),
        };
        table.insert(fingerprint, Slot::new(fingerprint, CompactState::default()));
        let (idle, small) = (table.room() - table.len(), table.blocks.len() <= SMALL);
        let most = if small { table.room() * 2 / 5 } else { table.room() / 6 };
        assert!(idle < most + BLOCK * WIDTH, "{idle} of {}", table.room());
    }
}
