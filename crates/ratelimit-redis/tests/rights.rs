//! Users who may do less than the store needs, and what an error then says.

mod common;

use common::{NOW, Server, charge, check, id, meter};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Claim, Claims, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError};
use ratelimit_redis::RedisStore;
use ratelimit_testbed::Redis;

/// With a time limit that no busy machine exceeds.
async fn connect(url: &str) -> Result<RedisStore, StoreError> {
    RedisStore::connect(&format!("{url}?timeout=60s")).await
}

#[tokio::test]
async fn a_password_is_needed_and_never_shown() {
    let server = Server::start_with(Redis { password: Some("right".into()), ..Redis::default() }).await;
    check(&connect(&server.url()).await.unwrap_err(), ErrorKind::Denied, Applied::No, false);
    let wrong = format!("redis://:secret@127.0.0.1:{}/", server.port);
    check(&connect(&wrong).await.unwrap_err(), ErrorKind::Denied, Applied::No, false);
    let right = format!("redis://:right@127.0.0.1:{}/", server.port);
    assert!(charge(&connect(&right).await.unwrap(), "1/s").await.unwrap().admitted);
}

#[tokio::test]
async fn a_user_without_rights_is_denied() {
    let server = Server::start(&[]).await;
    server.say("ACL SETUSER poor on >secret ~other:* +@all");
    let url = format!("redis://poor:secret@127.0.0.1:{}/", server.port);
    let store = connect(&url).await.unwrap();
    check(&charge(&store, "1/s").await.unwrap_err(), ErrorKind::Denied, Applied::No, false);
    server.say("ACL SETUSER sparse on >secret ~* +eval +evalsha +get +set +client +ping");
    let url = format!("redis://sparse:secret@127.0.0.1:{}/", server.port);
    let store = connect(&url).await.expect("who may not load scripts can send them");
    assert!(charge(&store, "1/s").await.unwrap().admitted);
    check(&charge(&store, "200/s log").await.unwrap_err(), ErrorKind::Denied, Applied::Unknown, false);
}

/// The script stops at the command that the user may not run, and what it has written before stays.
#[tokio::test]
async fn a_right_that_is_missing_in_a_script_may_have_charged() {
    let server = Server::start(&[]).await;
    server.say("ACL SETUSER sparse on >secret ~* +eval +evalsha +get +getrange +strlen +set +client +ping");
    let all = connect(&server.url()).await.unwrap();
    assert!(charge(&all, "200/s log").await.unwrap().admitted);
    let url = format!("redis://sparse:secret@127.0.0.1:{}/", server.port);
    let sparse = connect(&url).await.unwrap();
    let both = ["5/s", "200/s log"].map(|text| Claim { id: id(text), cost: 1, meter: meter(text) });
    let failure = sparse.claim(Claims::new(NOW, Mode::Charge, &both).unwrap()).await.unwrap_err();
    check(&failure, ErrorKind::Denied, Applied::Unknown, false);
    let answer = charge(&all, "5/s").await.unwrap();
    assert_eq!(answer.verdicts[0].remaining, 3, "the first limit was charged");
}

#[tokio::test]
async fn the_documented_permissions_suffice() {
    let page = include_str!("../../../docs/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER limiter")).expect("the page has it");
    let server = Server::start(&[]).await;
    assert!(server.say(line).contains("OK"));
    let url = format!("redis://limiter:secret@127.0.0.1:{}/", server.port);
    check(&connect(&format!("{url}1")).await.unwrap_err(), ErrorKind::Denied, Applied::No, false);
    assert!(server.say(&format!("{line} +select")).contains("OK"));
    connect(&format!("{url}1")).await.unwrap();
    let store = connect(&url).await.unwrap();
    for limit in ["2/s", "2/s fixed", "2/s precision 100ms", "200/s log", "2/s bucket", "2 at once"] {
        let limiter = ratelimit_core::RateLimiter::new(store.clone(), limit.parse::<Limit>().unwrap());
        let decision = limiter.check("k").await.unwrap();
        assert!(decision.allowed() && limiter.check("k").await.unwrap().allowed());
        limiter.refund(&decision).await.unwrap();
        limiter.peek("k").await.unwrap();
        limiter.reset("k").await.unwrap();
    }
}
