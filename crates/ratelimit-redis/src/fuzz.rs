//! Fuzz targets: replies of the scripts, with any state in them; views of a cluster; names read back.

use ratelimit_core::store::MeterId;
use ratelimit_core::store::Time;
use ratelimit_fuzz::{Input, any_slices, check_answers, fuzz};
use redis::parse_redis_value;

use crate::wire::codec;
use crate::wire::fast::Single;
use crate::wire::fast_batch;
use crate::wire::keys::{StoredKey, key_of};

#[test]
fn replies() {
    fuzz!("src", "replies", |bytes| {
        let mut input = Input::new(bytes);
        let time = *input.one_of(&[Time::Caller, Time::Server]);
        let slices = any_slices(&mut input);
        let Ok(reply) = parse_redis_value(input.rest()) else { return };
        let singles: Vec<Single<'_>> =
            slices.iter().filter_map(|slice| Single::of_slice(slice, Time::Caller)).collect();
        if singles.len() == slices.len() {
            check_answers(&slices, &fast_batch::decode(&singles, &reply));
        }
        check_answers(&slices, &codec::decode(&slices, time, reply));
    });
}

#[test]
fn names() {
    fuzz!("src", "names", |bytes| {
        if let StoredKey::Meter { namespace, scope, key } = StoredKey::read("rl:", bytes) {
            let id = MeterId { namespace: &namespace, scope: &scope, key: &key };
            assert_eq!(key_of("rl:", &id), bytes);
        }
        let mut input = Input::new(bytes);
        let [namespace, scope] = [input.some(), input.some()].map(|part| String::from_utf8_lossy(part));
        let (one, other) = (input.some(), input.rest());
        let name = |key| key_of("rl:", &MeterId { namespace: &namespace, scope: &scope, key });
        assert_eq!(name(one) == name(other), one == other);
        match StoredKey::read("rl:", &name(other)) {
            StoredKey::Meter { namespace: a, scope: b, key } => {
                assert_eq!((a.as_str(), b.as_str(), &key[..]), (&*namespace, &*scope, other));
            }
            StoredKey::Digest => assert!(namespace.len() + other.len() > 200),
            // Without a scope it is not a meter.
            StoredKey::Other => assert!(scope.is_empty()),
        }
    });
}
