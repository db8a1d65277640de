//! Fingerprints of many names.

use super::*;

#[test]
fn each_store_hashes_with_its_own_secrets() {
    let id = MeterId { namespace: "", scope: "s", key: b"key" };
    let (one, other) = (Fingerprints::new(), Fingerprints::new());
    assert_eq!(one.of(&id), one.of(&id));
    assert_ne!(one.of(&id).low, other.of(&id).low);
    assert_ne!(one.of(&id).high, other.of(&id).high);
    let [same, again, different] = [7, 7, 8].map(|seed| Fingerprints::with_seed(seed).of(&id));
    assert_eq!(same, again);
    assert!(same.low != different.low && same.high != different.high);
}

/// Of the places of 64 shards, each divided by the six bits with which a search begins.
#[test]
#[cfg_attr(miri, ignore = "two million keys are too many for Miri")]
fn keys_made_to_collide_in_one_store_are_spread_in_another() {
    let place = |fingerprints: &Fingerprints, key: u32| {
        let name = fingerprints.of(&MeterId { namespace: "", scope: "s", key: &key.to_le_bytes() });
        (name.shard(64), name.kept() >> 26)
    };
    let most = |fingerprints: &Fingerprints, keys: &[u32]| {
        let mut keys_at = std::collections::HashMap::new();
        keys.iter().for_each(|key| *keys_at.entry(place(fingerprints, *key)).or_default() += 1);
        keys_at.into_values().max().unwrap_or(0)
    };
    let known = Fingerprints::with_seed(7);
    let colliding: Vec<u32> = (0..2_000_000).filter(|key| place(&known, *key) == place(&known, 0)).collect();
    assert!(colliding.len() > 300 && most(&known, &colliding) == colliding.len());
    // Of 500 keys in 4,096 places, ten are at the same place once in 10^12 stores.
    assert!(most(&Fingerprints::new(), &colliding) < 10);
}

#[test]
fn fingerprints_depend_on_all_three_parts_of_a_name() {
    let long = "0123456789abcdefghijklmnopqrstuvwxyz";
    let mut names = std::collections::HashSet::new();
    for cut in 0..=long.len() {
        for again in cut..=long.len() {
            names.insert((
                long[..cut].to_owned(),
                long[cut..again].to_owned(),
                long.as_bytes()[again..].to_vec(),
            ));
        }
    }
    for place in 0..long.len() {
        let mut key = long.as_bytes().to_vec();
        key[place] ^= 1;
        names.insert((String::new(), String::new(), key));
    }
    names.insert((String::new(), String::new(), Vec::new()));
    names.insert((String::new(), String::new(), vec![0]));
    names.insert((String::new(), String::new(), vec![0, 0]));
    let fingerprints = Fingerprints::new();
    let [mut low, mut high, mut between] = [(); 3].map(|()| std::collections::HashSet::new());
    for (namespace, scope, key) in &names {
        let fingerprint = fingerprints.of(&MeterId { namespace, scope, key });
        low.insert(fingerprint.low);
        high.insert(fingerprint.high);
        // The two hashes are independent.
        between.insert(fingerprint.low ^ fingerprint.high);
    }
    assert_eq!([&low, &high, &between].map(|all| all.len()), [names.len(); 3]);
}
