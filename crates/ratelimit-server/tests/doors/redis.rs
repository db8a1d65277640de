//! The Redis protocol.

use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn throttle_has_the_five_numbers_of_the_module() {
    let started = Started::with(POLICIES, &[]).await;
    let mut redis = started.redis().await;
    assert_eq!(redis.numbers(&["CL.THROTTLE", "user123", "15", "30", "60", "1"]).await, [0, 16, 15, -1, 2]);
    // Once a day, so that nothing comes back meanwhile.
    assert_eq!(redis.numbers(&["cl.throttle", "a", "1", "1", "86400"]).await, [0, 2, 1, -1, 86_400]);
    assert_eq!(redis.numbers(&["CL.THROTTLE", "a", "1", "1", "86400", "0"]).await[..4], [0, 2, 1, -1]);
    assert_eq!(redis.numbers(&["CL.THROTTLE", "a", "1", "1", "86400"]).await[..4], [0, 2, 0, -1]);
    let refused = redis.numbers(&["CL.THROTTLE", "a", "1", "1", "86400"]).await;
    assert_eq!(refused[..3], [1, 2, 0]);
    assert!((86_000..=86_400).contains(&refused[3]) && refused[4] > 172_000, "{refused:?}");
    assert_eq!(
        redis.numbers(&["CL.THROTTLE", "a", "1", "1", "86400", "3"]).await[..4],
        [1, 2, 0, -1],
        "never"
    );
}

#[tokio::test]
async fn policies_of_the_file_count_with_the_other_doors() {
    let started = Started::with(POLICIES, &[]).await;
    let (mut redis, http) = (started.redis().await, started.http());
    assert_eq!(redis.numbers(&["RL.CHECK", "user", "7"]).await[..4], [0, 3, 2, -1]);
    assert_eq!(http.statuses(1, &json!({ "policy": "user", "key": "7" })).await, [200]);
    assert_eq!(redis.numbers(&["RL.CHECK", "user", "7", "2"]).await[..3], [1, 3, 1]);
    assert_eq!(redis.numbers(&["RL.CHECK", "user", "7"]).await[..3], [0, 3, 0]);
    assert_eq!(redis.numbers(&["RL.CHECK", "login", "a + login"]).await[..3], [0, 2, 1]);
}

#[tokio::test]
async fn requests_may_be_sent_all_at_once() {
    let started = Started::with(POLICIES, &[]).await;
    let mut redis = started.redis().await;
    let number = 1_000;
    let mut all = Vec::new();
    for _ in 0..number {
        all.extend(Redis::encode(&[b"CL.THROTTLE", b"many", b"499", b"1", b"86400"]));
        all.extend(Redis::encode(&[b"PING"]));
    }
    redis.send(&all).await;
    for place in 0..number {
        let numbers = redis.read_numbers().await;
        assert_eq!(numbers[0], i64::from(place >= 500), "{place}");
        assert_eq!(numbers[2], (499 - place).max(0), "{place}");
        assert_eq!(redis.lines(1).await, ["+PONG"]);
    }
}

#[tokio::test]
async fn what_clients_send_besides() {
    let started = Started::with(POLICIES, &[]).await;
    let mut redis = started.redis().await;
    for (words, answer) in [
        (&[&b"PING"[..]][..], "+PONG"),
        (&[b"ping"], "+PONG"),
        (&[b"CLIENT", b"SETINFO", b"LIB-NAME", b"x"], "+OK"),
        (&[b"SELECT", b"0"], "+OK"),
        (&[b"SELECT", b"1"], "-ERR there is only database 0"),
        (&[b"COMMAND", b"DOCS"], "*0"),
        (&[b"COMMAND", b"COUNT"], ":10"),
        (&[b"HELLO", b"4"], "-NOPROTO unsupported protocol version"),
    ] {
        assert_eq!(redis.ask(words).await, answer);
    }
    assert_eq!(redis.ask(&[b"PING", b"hello"]).await, "$5");
    assert_eq!(redis.lines(1).await, ["hello"]);
    assert_eq!(redis.ask(&[b"HELLO", b"3"]).await, "%5");
    let rest = redis.lines(19).await;
    assert!(rest.contains(&":3".to_owned()), "{rest:?}");
    assert_eq!(redis.ask(&[b"HELLO", b"2"]).await, "*10");
    redis.lines(19).await;
    redis.send(b"PING\r\n\r\nPING inline\r\n").await;
    assert_eq!(redis.lines(3).await, ["+PONG", "$6", "inline"]);
    assert_eq!(redis.ask(&[b"COMMAND"]).await, "*10");
    drop(redis);
    let mut redis = started.redis().await;
    redis.send(&[Redis::encode(&[b"QUIT"]), Redis::encode(&[b"PING"])].concat()).await;
    assert_eq!(redis.rest().await, "+OK\r\n", "nothing is answered after it");
}

#[tokio::test]
async fn wrong_commands_are_errors_and_the_connection_goes_on() {
    let started = Started::with(POLICIES, &[]).await;
    let mut redis = started.redis().await;
    for words in [
        &[&b"FLUSHALL"[..]][..],
        &[b"\xff\xfe"],
        &[b"CL.THROTTLE"],
        &[b"CL.THROTTLE", b"k", b"1"],
        &[b"CL.THROTTLE", b"k", b"x", b"1", b"60"],
        &[b"CL.THROTTLE", b"k", b"1", b"0", b"60"],
        &[b"CL.THROTTLE", b"k", b"1", b"1", b"0"],
        &[b"CL.THROTTLE", b"k", b"18446744073709551615", b"18446744073709551615", b"18446744073709551615"],
        &[b"CL.THROTTLE", b"k", b"1", b"1", b"60", b"-1"],
        &[b"RL.CHECK", b"user"],
        &[b"RL.CHECK", b"nobody", b"k"],
        &[b"RL.CHECK", b"\xff", b"k"],
        &[b"RL.CHECK", b"user", b"k", b"1.5"],
        &[b"RL.CHECK", b"address", b"nowhere"],
        &[b"RL.CHECK", b"login", b"k"],
        &[b"AUTH", b"password"],
    ] {
        let answer = redis.ask(words).await;
        assert!(answer.starts_with("-ERR "), "{words:?}: {answer}");
    }
    assert_eq!(redis.ask(&[b"PING"]).await, "+PONG");
}

#[tokio::test]
async fn keys_are_any_bytes() {
    let started = Started::with(POLICIES, &[]).await;
    let mut redis = started.redis().await;
    let long = vec![b'x'; 60_000];
    let keys: [&[u8]; 6] = [b"", b"\0", b"\r\n", b"\xff\xfe", &long, &long[..59_999]];
    for key in keys {
        redis.send(&Redis::encode(&[b"CL.THROTTLE", key, b"0", b"1", b"86400"])).await;
        assert_eq!(redis.read_numbers().await[0], 0, "a key of its own: {} bytes", key.len());
        redis.send(&Redis::encode(&[b"RL.CHECK", b"user", key, b"3"])).await;
        assert_eq!(redis.read_numbers().await[0], 0, "a key of its own: {} bytes", key.len());
    }
    for key in keys {
        redis.send(&Redis::encode(&[b"CL.THROTTLE", key, b"0", b"1", b"86400"])).await;
        assert_eq!(redis.read_numbers().await[0], 1);
        redis.send(&Redis::encode(&[b"RL.CHECK", b"user", key])).await;
        assert_eq!(redis.read_numbers().await[0], 1);
    }
}
