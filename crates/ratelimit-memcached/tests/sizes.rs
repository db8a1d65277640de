//! Long keys, large counts, large logs and batches, and counts that have lost a digit.

mod common;

use std::time::Duration;

use common::{Limiter, START, limiter};
use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::{CheckError, ErrorKind, Request};

/// Memcached's keys have at most 250 bytes; ours any number.
#[tokio::test]
async fn keys_of_any_length_have_separate_meters() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let lengths = [
        0, 1, 192, 193, 194, 195, 196, 197, 198, 199, 200, 209, 210, 211, 212, 213, 214, 215, 216, 230, 249,
        250, 251, 252, 1_000, 100_000,
    ];
    for limit in ["3/h fixed", "3/h", "3/h precision 15min", "3/h burst 3", "3/h log"] {
        let limiter = limiter(&store, limit);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for length in lengths {
            keys.push(vec![b'x'; length]);
            // The same except for the last byte, and with bytes that have to be escaped.
            keys.extend(length.checked_sub(1).map(|length| [vec![b'x'; length], vec![b'y']].concat()));
            keys.extend(length.checked_sub(1).map(|length| [vec![0; length], b"\r\n".to_vec()].concat()));
        }
        for left in [2, 1, 0] {
            for key in &keys {
                let decision = limiter.check(key).await.unwrap();
                assert_eq!((decision.allowed(), decision.remaining()), (true, left), "{limit} {}", key.len());
            }
        }
        for key in &keys {
            assert!(!limiter.check(key).await.unwrap().allowed(), "{limit} {}", key.len());
            limiter.reset(key).await.unwrap();
        }
    }
    // What a reset leaves in place of a window's counter expires when the counter would have.
    for (key, life) in server.keys() {
        let value = server.value(&key);
        assert!(value.as_deref().is_some_and(|value| value.starts_with('@')), "{key}: {value:?}");
        assert!(life <= 3 * 3_600 + 30, "{key} lives {life} s");
    }
}

/// The item in which a limit counts a key at [`START`].
fn item_of(limiter: &Limiter, key: &str) -> String {
    let limit = limiter.limits()[0].to_string();
    let segment = if limit.contains("precision") { 900 } else { 3_600 };
    format!("rl!!{}!{key}!{}", limiter.limits()[0].scope(), START.as_nanos() / (segment * 1_000_000_000))
}

/// Lowers the count of a key from ten to nine, so that the server pads it with a space, and returns the key. The server
/// creates a new item instead while it still needs this one for a reply.
async fn pad(server: &common::Server, limiter: &Limiter, name: &str) -> String {
    for nth in 0..200 {
        let key = format!("{name}{nth}");
        let decision = limiter.check(Request::new(&key).cost(10)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        limiter.settle(&decision, 9).await.unwrap();
        if server.value(&item_of(limiter, &key)).as_deref() == Some("9 ") {
            return key;
        }
    }
    panic!("no count is filled up with a space");
}

#[tokio::test]
async fn space_padded_counts_are_read_and_incremented() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    for (limit, next) in [("20/h fixed", 0), ("20/h", 3_600), ("20/h precision 15min", 900)] {
        let limiter = limiter(&store, limit);
        let key = pad(&server, &limiter, "now").await;
        assert_eq!(limiter.peek(&key).await.unwrap().remaining(), 11, "{limit}");
        assert_eq!(limiter.check(Request::new(&key).cost(11)).await.unwrap().remaining(), 0, "{limit}");
        if next > 0 {
            // It is also read as a previous window's count.
            let key = pad(&server, &limiter, "before").await;
            limiter.clock().advance(Duration::from_secs(next));
            assert_eq!(limiter.check(&key).await.unwrap().remaining(), 10, "{limit}");
        }
    }
}

#[tokio::test]
async fn logs_too_large_to_store_are_refused_from_the_start() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let too_large = limiter(&store, "200000/h log");
    let refused = too_large.check("k").await;
    let Err(CheckError::Store(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // The largest log that should fit does fit.
    let most = limiter(&store, "131000/h log");
    assert!(most.check(Request::new("k").cost(131_000)).await.unwrap().allowed());
    assert!(!most.check("k").await.unwrap().allowed());
}

#[tokio::test]
async fn the_largest_counts_stay_in_bounds() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let limiter = limiter(&store, &format!("{MAX_UNITS}/h fixed"));
    for _ in 0..20 {
        let charged = limiter.charge(Request::new("k").cost(u64::MAX)).await.unwrap();
        assert_eq!(charged.remaining(), 0);
    }
    let hour = START.as_nanos() / 3_600_000_000_000;
    let scope = limiter.limits()[0].scope().to_owned();
    let value = server.say(&format!("mg rl!!{scope}!k!{hour} v\r\nmn\r\n"), "MN");
    assert_eq!(value[1].trim().parse(), Ok(MAX_UNITS), "{value:?}");
}

#[tokio::test]
async fn large_batches_are_answered() {
    let server = common::Server::start(&[]).await;
    let store = server.store().await;
    let segments = limiter(&store, "100000/h precision 1s");
    let answers = segments.check_many(["k"; 40]).await;
    let left: Vec<u64> = answers.into_iter().map(|answer| answer.unwrap().remaining()).collect();
    assert_eq!(left, (0..40).map(|nth| 99_999 - nth).collect::<Vec<_>>());
    let log = limiter(&store, "100000/h log");
    let keys: Vec<String> = (0..20).map(|nth| format!("user:{nth}")).collect();
    for answer in log.check_many(keys.iter().map(|key| Request::new(key).cost(100_000))).await {
        assert!(answer.unwrap().allowed());
    }
}
