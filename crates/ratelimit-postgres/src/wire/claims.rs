//! Claims that outlive their caller, and their encoding as arguments of the functions on the server.

use ratelimit_core::kit;
use ratelimit_core::meter::{Bucket, MAX_UNITS, Meter};
use ratelimit_core::store::{Claims, MeterId};
use ratelimit_store_kit::bounded_name;

/// Names up to this many bytes are stored as they are.
const MAX_NAME: usize = 200;

/// The longest debt that a charge adds to a bucket, as in core: 2<sup>62</sup> - 1 ns.
const MAX_DEBT: u64 = (1 << 62) - 1;

/// Claims, with their meters' names as stored.
pub(crate) type OwnedClaims = kit::OwnedClaims<Vec<u8>>;

/// A claim, with its meter's name as stored.
pub(crate) type OwnedClaim = kit::OwnedClaim<Vec<u8>>;

/// Owned `claims`, so that a task can hold them.
pub(crate) fn owned(claims: &Claims<'_>) -> OwnedClaims {
    OwnedClaims::new(claims, name_of)
}

/// A meter's name as stored. Short names begin with a digit, so none of them equals a digest.
pub(crate) fn name_of(id: &MeterId<'_>) -> Vec<u8> {
    bounded_name(id, MAX_NAME)
}

/// All names of this namespace are between these two: after the namespace comes a digit.
pub(crate) fn names_of(namespace: &str) -> [Vec<u8>; 2] {
    let after = format!("{}:{namespace}", namespace.len()).into_bytes();
    let before = [&after[..], b":"].concat();
    [after, before]
}

/// All names that are no digests are between these two: they begin with a digit.
pub(crate) fn all_names() -> [Vec<u8>; 2] {
    [b"/".to_vec(), b":".to_vec()]
}

/// Only this name is between these two: none is longer than `MAX_NAME`.
pub(crate) fn only_name(name: &[u8]) -> [Vec<u8>; 2] {
    let mut after = name.to_vec();
    match after.pop() {
        None | Some(0) => {}
        Some(last) => {
            after.push(last - 1);
            after.extend_from_slice(&[0xff; MAX_NAME]);
        }
    }
    [after, [name, b"\0"].concat()]
}

/// Kind, cost, and five numbers that depend on the kind: see `meter.sql`.
pub(crate) fn claim_numbers(claim: &OwnedClaim) -> [i64; 7] {
    // A larger cost never fits, and counts saturate.
    let cost = claim.cost.min(MAX_UNITS + 1);
    let numbers = match &claim.meter {
        Meter::Window(window) => {
            let [carried, strict] = [u64::from(window.carried()), u64::from(window.strict())];
            [0, cost, window.limit(), window.segment(), window.offset(), carried, strict]
        }
        Meter::Bucket(bucket) => {
            let room = bucket.burst().checked_sub(cost).map(|units| units * bucket.interval());
            let drain = drain_time(bucket, cost);
            let numbers = [1, cost, bucket.burst(), bucket.interval(), 0, drain, bucket.step()];
            let mut numbers = numbers.map(signed);
            numbers[4] = room.map_or(-1, signed);
            return numbers;
        }
        Meter::Log(log) => [2, cost.min(log.limit() + 1), log.limit(), log.window(), 0, 0, 0],
    };
    numbers.map(signed)
}

/// The time in which `units` drain, as a charge adds it.
fn drain_time(bucket: &Bucket, units: u64) -> u64 {
    bucket.interval().saturating_mul(units).min(MAX_DEBT)
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_between_its_bounds_and_those_of_keys_between_all() {
        let [first, last] = all_names();
        let name = |key: &[u8]| name_of(&MeterId { namespace: "api", scope: "log", key });
        let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\xff\xff", b"b", b"b\0", &[0xff; 120]];
        for key in keys {
            let [after, before] = only_name(&name(key));
            for other in keys {
                let name = name(other);
                assert!(first < name && name < last);
                assert_eq!(after < name && name < before, key == other, "{key:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_names_of_a_namespace_are_between_its_bounds_and_no_others() {
        for bounded in ["", "a", "api", "api2", "ap:"] {
            let [after, before] = names_of(bounded);
            for namespace in ["", "a", "api", "api2", "ap:", "apj"] {
                for (scope, key) in [("log", &b""[..]), ("sliding:60s", b"\xff\xff"), ("log", &[b'x'; 300])] {
                    let name = name_of(&MeterId { namespace, scope, key });
                    let is_own = namespace == bounded && name[0] != b'#';
                    assert_eq!(after < name && name < before, is_own, "{namespace:?} {bounded:?}");
                }
            }
        }
    }
}
