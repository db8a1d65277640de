//! Names of meters are injective and are read back; slots are those of the servers.

use std::collections::HashMap;

use super::*;

fn name(namespace: &str, scope: &str, key: &[u8]) -> Vec<u8> {
    key_of("rl:", &MeterId { namespace, scope, key })
}

#[test]
fn names_are_readable_and_do_not_change() {
    assert_eq!(name("api", "sliding:60s", b"user:7"), b"rl:{api:user:7}sliding:60s");
    assert_eq!(name("", "log", b""), b"rl:{:}log");
    assert_eq!(name("a:b", "log", b"{x}%"), b"rl:{a%3Ab:%7Bx%7D%25}log");
    assert_eq!(name("", "log", &[b'x'; 201]).len(), b"rl:{%=}log".len() + 64);
}

#[test]
fn different_meters_have_different_names() {
    let texts = ["", "a", ":", "a:", ":a", "%", "%3A", "{", "}", "%7D", "a}log", "{a}", "%=", "%25"];
    let long = "x".repeat(201);
    let mut seen = HashMap::new();
    for namespace in texts.iter().copied().chain([long.as_str()]) {
        for key in texts.iter().copied().chain([long.as_str(), &long[..200]]) {
            for scope in ["log", "a", "}a"] {
                let id = (namespace, key, scope);
                assert_eq!(seen.insert(name(namespace, scope, key.as_bytes()), id), None, "{id:?}");
            }
        }
    }
    let digest = name("", "log", long.as_bytes());
    let looks_alike = &digest[4..digest.len() - 4];
    assert_ne!(name("", "log", looks_alike), digest);
}

#[test]
fn a_name_is_read_back_unless_it_is_a_digest() {
    for (namespace, key) in [("", &b""[..]), ("api", b"user:7"), ("a:b%", b"{x}%:\xff\x00"), ("%=", b"%=")] {
        let name = name(namespace, "sliding:60s", key);
        let StoredKey::Meter { namespace: a, scope, key: b } = StoredKey::read("rl:", &name) else {
            panic!("{name:?} is not read");
        };
        assert_eq!((&*a, &*scope, &*b), (namespace, "sliding:60s", key));
        assert!(matches!(StoredKey::read("other:", &name), StoredKey::Other));
    }
    assert!(matches!(StoredKey::read("rl:", &name("", "log", &[b'x'; 201])), StoredKey::Digest));
    for other in
        ["rl:", "rl:{}log", "rl:{a:b}", "rl:{a}log", "rl:{:a", "rl:{%:a}log", "rl:{%61:a}log", "rl:{%=0}log"]
    {
        assert!(matches!(StoredKey::read("rl:", other.as_bytes()), StoredKey::Other), "{other}");
    }
}

#[test]
fn slots_are_those_of_the_servers() {
    assert_eq!(slot_of(b"123456789"), 0x31c3);
    assert_eq!(slot_of(b"{u1}a"), slot_of(b"x{u1}{u2}"));
    // An empty tag does not count: the whole key does.
    assert_eq!(slot_of(b"{}a"), 0x2a7b);
    assert_eq!(slot_of(&name("n", "log", b"k}")), slot_of(&name("n", "bucket", b"k}")));
    assert_ne!(slot_of(&name("n", "log", b"k}1")), slot_of(&name("n", "log", b"k}2")));
}
