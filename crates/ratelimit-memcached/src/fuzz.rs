//! Fuzz targets: replies of a server, in pieces, and what an item turns out to contain.

use ratelimit_core::ErrorKind;
use ratelimit_core::meter::State;
use ratelimit_fuzz::fuzz;

use crate::config::MemcachedConfig;
use crate::wire::keys::since_reset;
use crate::wire::reply::{Counter, Received, Reply, receive};

#[test]
fn replies() {
    fuzz!("src", "replies", |bytes| {
        let mut rest = bytes;
        while let Received::Whole { reply, stamp, size } = receive(rest) {
            assert!((1..=rest.len()).contains(&size));
            // As long as it is not whole, it is a part; and what follows it does not matter.
            for length in (0..size).rev().take(300) {
                assert!(matches!(receive(&rest[..length]), Received::Part), "{length} of {size}");
            }
            let Received::Whole { reply: alone, stamp: same, size: as_long } = receive(&rest[..size]) else {
                panic!("it is not whole by itself")
            };
            assert_eq!((alone.is_ok(), same, as_long), (reply.is_ok(), stamp, size));
            match &reply {
                Ok(reply) => check(reply),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            rest = &rest[size..];
        }
    });
}

/// An item of another program is recognised as such; everything else can be decided on.
fn check(reply: &Reply) {
    match reply.counter() {
        Ok(Counter::Reset(mark)) => assert!(since_reset("k", mark).is_ascii()),
        Ok(Counter::Count(_)) => {}
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Server), "{error}"),
    }
    if let Reply::Value { bytes, .. } = reply
        && let Ok(state) = State::from_bytes(bytes)
    {
        assert_eq!(state.to_bytes(), bytes[..]);
    }
}

#[test]
fn urls() {
    fuzz!("src", "urls", |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        assert!(!MemcachedConfig::of(text).servers.is_empty());
        // Whatever it is, an error about it does not show the password.
        if !text.contains(['3', '@', '/', '?']) {
            let url = format!("memcached://user:s3cr3t@{text}");
            let config = MemcachedConfig::from_url(&url);
            assert!(!format!("{config:?}").contains("s3cr3t"));
            let _ = config.map_err(|error| assert!(!error.to_string().contains("s3cr3t"), "{error}"));
        }
    });
}
