//! Addresses, right and wrong.

use std::time::Duration;

use ratelimit_stores::core::{CounterStore as _, ErrorKind, Limit, RateLimiter};
use ratelimit_testbed::Testbed;

async fn counts(url: &str) {
    let store = ratelimit_stores::connect(url).await.unwrap_or_else(|error| panic!("{error}"));
    let limiter = RateLimiter::new(store, "2/h".parse::<Limit>().unwrap());
    let key = format!("{url} {}", std::process::id());
    for allowed in [true, true, false] {
        assert_eq!(limiter.check(&*key).await.unwrap().allowed(), allowed, "{url}");
    }
}

#[tokio::test]
async fn each_address_opens_its_store() {
    let testbed = Testbed::from_env();
    counts("memory:?max_keys=1000").await;
    let redis = testbed.redis().await.unwrap();
    counts(&format!("{}?prefix=stores:&timeout=5s", redis.url())).await;
    let cluster = testbed.redis_cluster().await.unwrap();
    counts(&format!("{}?timeout=5s", cluster.url())).await;
    let sentinel = testbed.redis_sentinel(Duration::from_secs(60)).await.unwrap();
    counts(&format!("{}?timeout=5s", sentinel.url())).await;
    let memcached = testbed.memcached().await.unwrap();
    counts(&format!("{}?timeout=5s&connections=1", memcached.url())).await;
    let postgres = testbed.postgres().await.unwrap();
    counts(&format!("{}?timeout=5s&schema=stores", postgres.url())).await;
}

#[tokio::test]
async fn every_address_that_a_store_accepts_reaches_it() {
    assert!(ratelimit_stores::connect("memory?max_keys=7").await.is_ok());
    for url in ["valkey+unix:///no/such/socket", "redis+unix:///no/such/socket", "unix:///no/such/socket"] {
        let error = ratelimit_stores::connect(url).await.expect_err("nothing listens there");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{url}: {error}");
    }
}

#[tokio::test]
async fn an_option_reaches_the_store() {
    let store = ratelimit_stores::connect("memory:?max_keys=0&when_full=refuse").await.unwrap();
    let limiter = RateLimiter::new(&store, "2/h".parse::<Limit>().unwrap());
    assert!(limiter.check("k").await.is_err(), "there is no room for a key");
    assert!(store.promises() == ratelimit_stores::connect("memory:").await.unwrap().promises());
}

#[tokio::test]
async fn errors_list_the_valid_schemes_and_options() {
    for (url, expected) in [
        (
            "http://:s3cret@host",
            "`memory:`, `redis://`, `redis+cluster://`, `redis+sentinel://`, `memcached://`, `postgres://`",
        ),
        ("", "`memory:`"),
        ("http", "redis://"),
        ("memory:?s3cret=1", "`max_keys`, `shards`, `when_full`"),
        ("redis://:s3cret@host/?timout=1s", "`authorities`, `batch`"),
        ("redis+cluster://:s3cret@a,b/?connections=x", "`connections` takes a whole number"),
        ("memcached://a?timeout=5", "`500ms`"),
        ("memcached://a?authorities=/no/such/file", "`authorities` takes the path of a file"),
        ("postgres://u:s3cret@host/?timout=1s", "`clock_slack`, `connections`, `logged`"),
    ] {
        let error = ratelimit_stores::connect(url).await.err().unwrap_or_else(|| panic!("{url} is accepted"));
        let text = error.to_string();
        assert!(text.contains(expected) && !text.contains(":s3cret@"), "{url}: {text}");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{text}");
    }
}

#[tokio::test]
async fn a_time_limit_of_zero_is_a_mistake_of_the_configuration() {
    for url in [
        "redis://127.0.0.1:1",
        "redis+cluster://127.0.0.1:1",
        "memcached://127.0.0.1:1",
        "postgres://127.0.0.1:1",
    ] {
        for zero in ["0ms", "0s"] {
            let outcome = ratelimit_stores::connect(&format!("{url}/?timeout={zero}")).await;
            let Err(error) = outcome else { panic!("{url}: {zero} is taken") };
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains("`timeout` takes a duration longer than zero"), "{error}");
        }
    }
}

#[tokio::test]
async fn the_address_of_a_redis_is_not_one_of_a_memcached() {
    let server = ratelimit_testbed::Testbed::from_env().redis().await.unwrap();
    for log_in in ["", "user:password@"] {
        let error = ratelimit_stores::connect(&format!("memcached://{log_in}{}", server.address()))
            .await
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("a Redis server answers there"), "{error}");
    }
}
