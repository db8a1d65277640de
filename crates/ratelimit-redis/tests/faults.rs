//! What a store reports and does when its server is down, closed, full, frozen, has lost its scripts or holds foreign values.
#![allow(clippy::disallowed_methods)] // deadlines are kept on the machine's clock

mod common;

use std::time::{Duration, Instant};

use common::{NOW, Server, charge, check, id, meter};
use ratelimit_core::layers::BatchConfig;
use ratelimit_core::meter::{Log, Meter};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Claim, Claims, Mode, Receipt, Refund, Time};
use ratelimit_core::{CounterStore, ErrorKind, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
use tokio::io::AsyncWriteExt as _;

fn config(server: &Server) -> RedisConfig {
    RedisConfig::from_url(&server.url()).unwrap().timeout(Duration::from_secs(5))
}

#[tokio::test]
async fn a_server_that_is_down_is_reported_at_the_start_and_found_later() {
    let server = Server::start(&[]).await;
    server.kill().await;
    check(&RedisStore::connect(&server.url()).await.unwrap_err(), ErrorKind::Unreachable, Applied::No, true);
    let store = RedisStore::lazy(config(&server)).unwrap();
    check(&charge(&store, "1/s").await.unwrap_err(), ErrorKind::Unreachable, Applied::No, true);
    server.restart().await;
    assert!(charge(&store, "1/s").await.unwrap().admitted);
}

#[tokio::test]
async fn invalid_addresses_are_not_quoted_in_errors() {
    for url in ["", "secret", "redis://:secret@", "http://secret/", "redis://h:secret/"] {
        let error = RedisStore::connect(url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
    let error = RedisStore::connect("redis://:secret@a,b/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.to_string().contains("redis+cluster://") && !error.to_string().contains("secret"),
        "{error}"
    );
}

/// Before there is a connection, no claim has been sent.
#[tokio::test]
async fn errors_of_connecting_charge_nothing() {
    let server = Server::start(&[]).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stranger = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for url in [format!("{}99", server.url()), format!("redis://{stranger}/")] {
        let error = RedisStore::connect(&url).await.unwrap_err();
        check(&error, ErrorKind::Server, Applied::No, false);
        let store = RedisStore::lazy(RedisConfig::from_url(&url).unwrap()).unwrap();
        check(&charge(&store, "1/s").await.unwrap_err(), ErrorKind::Server, Applied::No, false);
    }
}

/// With it, a cluster would spread the limits of one key over several slots.
#[tokio::test]
async fn a_prefix_with_empty_braces_is_refused() {
    for url in ["redis://localhost/?prefix=a{}:", "redis+cluster://localhost/?prefix={}"] {
        let error = RedisStore::lazy(RedisConfig::from_url(url).unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Misconfigured, Applied::No));
        assert!(error.to_string().contains("prefix"), "{error}");
    }
    for url in ["redis://localhost/?prefix={a}:", "redis+cluster://localhost/?prefix={"] {
        RedisStore::lazy(RedisConfig::from_url(url).unwrap()).unwrap();
    }
}

#[tokio::test]
async fn foreign_values_are_corrupt_and_left_unchanged() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    for text in ["5/s", "5/s fixed", "5/s precision 100ms", "5/s precision 10ms", "5/s log", "5/s bucket"] {
        let key = format!("\"rl:{{:k}}{text}\"");
        for foreign in [
            format!("LPUSH {key} x"),
            format!("SET {key} x"),
            format!("SET {key} wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"),
            format!("SET {key} lllllllllllllllllllllllll"),
            format!("SET {key} bbbbbbbbbbbbbbbbbbbbbbbbb{}", "b".repeat(24)),
            // As long as a bucket, and begin like one.
            format!("SET {key} backup-2024-finished-okay"),
            format!("SET {key} b000000000000000022222222"),
        ] {
            server.say(&format!("DEL {key}"));
            assert!(!server.say(&foreign).contains("ERR"));
            let before = server.say(&format!("DUMP {key}"));
            let mirrored = format!("{text} name beside");
            let claims = [
                Claim { id: id(&mirrored), cost: 1, meter: meter("5/s") },
                Claim { id: id(text), cost: 1, meter: meter(text) },
            ];
            let claims = Claims::new(NOW, Mode::Charge, &claims).unwrap();
            check(&store.claim(claims).await.unwrap_err(), ErrorKind::Corrupt, Applied::No, false);
            let alone = [Claim { id: id(text), cost: 1, meter: meter(text) }];
            let alone = Claims::new(NOW, Mode::Charge, &alone).unwrap();
            check(&store.claim(alone).await.unwrap_err(), ErrorKind::Corrupt, Applied::No, false);
            assert_eq!(server.say(&format!("DUMP {key}")), before);
            assert!(
                server.say(&format!("EXISTS \"rl:{{:k}}{mirrored}\"")).contains(":0"),
                "the other was charged"
            );
        }
        server.say(&format!("DEL {key}"));
    }
    // In a batch, only the slices on such values fail.
    let claims = ["5/s", "5/s bucket", "5/s", "5/s fixed"]
        .map(|text| [Claim { id: id(text), cost: 1, meter: meter(text) }]);
    let slices = claims.each_ref().map(|claims| Claims::new(NOW, Mode::Charge, claims).unwrap());
    for foreign in ["SET \"rl:{:k}5/s\" x", "LPUSH \"rl:{:k}5/s\" x"] {
        server.say("DEL \"rl:{:k}5/s\"");
        server.say(foreign);
        let before = server.say("DUMP \"rl:{:k}5/s\"");
        let answers = store.claim_many(&slices).await;
        for foreign in [&answers[0], &answers[2]] {
            check(foreign.as_ref().unwrap_err(), ErrorKind::Corrupt, Applied::No, false);
        }
        for sound in [&answers[1], &answers[3]] {
            assert!(sound.as_ref().unwrap().charged);
        }
        assert_eq!(server.say("DUMP \"rl:{:k}5/s\""), before);
    }
}

/// Whoever retries a refund that may have been applied could give units back twice.
#[tokio::test]
async fn a_refund_of_which_one_part_fails_may_have_been_applied() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    let texts = ["5/h", "5/h bucket"];
    let claims = texts.map(|text| Claim { id: id(text), cost: 2, meter: meter(text) });
    let charged = store.claim(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap();
    let refund = |nth: usize| {
        let Claim { id, meter, .. } = claims[nth];
        Refund { id, cost: 2, meter, receipt: charged.verdicts[nth].receipt }
    };
    server.say("SET \"rl:{:k}5/h bucket\" x");
    check(&store.refund(NOW, &[refund(1)]).await.unwrap_err(), ErrorKind::Corrupt, Applied::No, false);
    let both = store.refund(NOW, &[refund(0), refund(1)]).await;
    check(&both.unwrap_err(), ErrorKind::Corrupt, Applied::Unknown, false);
    let peek = Claims::new(NOW, Mode::Peek, &claims[..1]).unwrap();
    assert_eq!(store.claim(peek).await.unwrap().verdicts[0].remaining, 5);
}

#[tokio::test]
async fn a_timeout_without_end_is_no_panic() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server).timeout(Duration::MAX)).await.unwrap();
    assert!(charge(&store, "1/s").await.unwrap().admitted);
}

#[tokio::test]
async fn a_replica_is_read_only() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    assert!(charge(&store, "1/s").await.unwrap().admitted);
    server.say(&format!("REPLICAOF 127.0.0.1 {}", common::free_port()));
    check(&charge(&store, "2/s").await.unwrap_err(), ErrorKind::ReadOnly, Applied::No, true);
    server.say("REPLICAOF NO ONE");
    assert!(charge(&store, "2/s").await.unwrap().admitted);
}

#[tokio::test]
async fn a_full_server_is_reported_and_recovers() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    server.say("CONFIG SET maxmemory-policy noeviction");
    server.say("CONFIG SET maxmemory 1");
    for text in ["1/s", "1/s log", "1/s bucket"] {
        check(&charge(&store, text).await.unwrap_err(), ErrorKind::Full, Applied::No, true);
    }
    server.say("CONFIG SET maxmemory 0");
    assert!(charge(&store, "1/s").await.unwrap().admitted);
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    for admitted in [true, true, true, false] {
        assert!(server.say("SCRIPT FLUSH").contains("OK"));
        let answer = charge(&store, "3/min").await.unwrap();
        assert_eq!(answer.admitted, admitted);
    }
}

#[tokio::test]
async fn the_first_call_after_a_restart_is_answered() {
    let server = Server::start(&[]).await;
    for connections in [1, 3] {
        let store = RedisStore::connect_with(config(&server).connections(connections)).await.unwrap();
        for _ in 0..3 {
            assert!(charge(&store, "1/min").await.unwrap().admitted);
            server.restart().await;
        }
    }
}

#[tokio::test]
async fn calls_in_flight_fail_when_the_server_dies() {
    let server = Server::start(&[]).await;
    // With shared calls, three calls are in flight, or as many as are sent alone; a waiting check has charged nothing.
    let shared = BatchConfig::default().concurrent_batches(3).unbatched(0).batch_size(4);
    for (batch, under_way) in [(None, 20), (Some(shared), 12), (Some(BatchConfig::default()), 16)] {
        let store = RedisStore::connect_with(config(&server).batch(batch)).await.unwrap();
        server.freeze().await;
        let calls: Vec<_> = (0..20)
            .map(|_| {
                tokio::spawn({
                    let store = store.clone();
                    async move { charge(&store, "1000/min").await }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.kill().await;
        let mut unknown = 0;
        for call in calls {
            let error = call.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            unknown += u32::from(error.applied() == Applied::Unknown);
        }
        assert_eq!(unknown, under_way, "{batch:?}");
        server.restart().await;
        assert!(charge(&store, "1000/min").await.unwrap().admitted);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_a_reply_is_unreachable() {
    let server = Server::start(&[]).await;
    let cutter = common::cutter::Cutter::start(server.port).await;
    let url = format!("redis://127.0.0.1:{}/", cutter.port);
    let config = RedisConfig::from_url(&url).unwrap().timeout(Duration::from_secs(5));
    let store = RedisStore::connect_with(config).await.unwrap();
    for bytes in 1..8 {
        assert!(charge(&store, "100/min").await.unwrap().admitted);
        cutter.cut_after(bytes);
        let error = charge(&store, "100/min").await.unwrap_err();
        check(&error, ErrorKind::Unreachable, Applied::Unknown, true);
        assert!(!error.to_string().contains('\n'), "{error}");
        cutter.pass();
    }
    // All of them were charged, those without an answer too.
    let answer = charge(&store, "100/min").await.unwrap();
    assert_eq!(answer.verdicts[0].remaining, 100 - 15);
}

#[tokio::test]
async fn calls_to_a_frozen_server_time_out() {
    let server = Server::start(&[]).await;
    let timeout = Duration::from_millis(200);
    let store = RedisStore::connect_with(config(&server).timeout(timeout)).await.unwrap();
    assert!(charge(&store, "100/min").await.unwrap().admitted);
    server.freeze().await;
    for (kind, applied) in [(ErrorKind::Timeout, Applied::Unknown), (ErrorKind::Unreachable, Applied::No)] {
        let since = Instant::now();
        // The first call has been sent; the next cannot even connect.
        check(&charge(&store, "100/min").await.unwrap_err(), kind, applied, true);
        assert!(since.elapsed() >= timeout);
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    }
    server.thaw().await;
    let answer = charge(&store, "100/min").await;
    assert!(answer.as_ref().is_ok_and(|answer| answer.admitted), "{answer:?}");
}

#[tokio::test]
async fn the_servers_clock_decides_if_configured() {
    let server = Server::start(&[]).await;
    let config = config(&server).time(Time::Server);
    let store = RedisStore::connect_with(config).await.unwrap();
    assert_eq!(store.promises().time, Time::Server);
    for text in ["1/h", "1/h fixed", "1/h precision 1min", "1/h log", "1/h bucket", "1/h offset 10min"] {
        let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        // Whatever the caller's clock says.
        let claim = |now| {
            let store = store.clone();
            async move {
                let claim = [Claim { id: id(text), cost: 1, meter: meter(text) }];
                store
                    .claim(Claims::new(Timestamp::from_secs(now), Mode::Charge, &claim).unwrap())
                    .await
                    .unwrap()
            }
        };
        let first = claim(1).await;
        assert!(first.admitted && first.charged, "{text}");
        assert!(
            first.now.as_nanos() / 1_000_000_000 >= before && first.now.as_nanos() % 1_000 == 0,
            "{first:?}"
        );
        assert!(first.now.as_nanos() / 1_000_000_000 < before + 600, "{first:?}");
        let receipt = first.verdicts[0].receipt;
        if text != "1/h bucket" {
            assert_eq!(receipt.instant(), first.now, "{text}");
        }
        let second = claim(4_000_000_000).await;
        assert!(second.now >= first.now);
        if text.ends_with("log") || text.ends_with("bucket") {
            assert!(!second.admitted && second.verdicts[0].fits_at.unwrap() > second.now, "{text}");
        }
        let refund = ratelimit_core::store::Refund { id: id(text), cost: 1, meter: meter(text), receipt };
        store.refund(Timestamp::EPOCH, &[refund]).await.unwrap();
        assert!(claim(9).await.admitted, "{text} after the refund");
    }
}

#[tokio::test]
async fn every_meter_expires_after_it_has_stopped_counting() {
    let server = Server::start(&[]).await;
    let config = config(&server).clock_slack(Duration::from_secs(10));
    let store = RedisStore::connect_with(config).await.unwrap();
    for (text, seconds) in [
        ("9/min", 120),
        ("9/min fixed", 60),
        ("9/min precision 10s", 70),
        ("6/min bucket", 10),
        ("9/min log", 60),
    ] {
        for mode in [Mode::Charge, Mode::Charge, Mode::Force] {
            let claim = [Claim { id: id(text), cost: 1, meter: meter(text) }];
            let answer = store.claim(Claims::new(NOW, mode, &claim).unwrap()).await.unwrap();
            let counts = i64::try_from(answer.verdicts[0].reset_at.since(NOW).as_millis()).unwrap();
            let left: i64 = pttl(&server, text);
            // A bucket's lifetime is rounded up by at most 4.3 s.
            assert!(left > counts && left <= (seconds * 3 + 10) * 1_000 + 4_296, "{text}: {left}, {counts}");
        }
        let before = pttl(&server, text);
        let refund = ratelimit_core::store::Refund {
            id: id(text),
            cost: 1,
            meter: meter(text),
            receipt: Receipt::at(NOW),
        };
        store.refund(NOW, &[refund]).await.unwrap();
        assert!((1..=before).contains(&pttl(&server, text)), "{text}: a refund keeps the expiry");
    }
    // The longest possible debts and windows.
    for text in ["1/3660d bucket", "1/3660d", "1/3660d log"] {
        for _ in 0..3 {
            let claim = [Claim { id: id(text), cost: u64::MAX, meter: meter(text) }];
            store.claim(Claims::new(NOW, Mode::Force, &claim).unwrap()).await.unwrap();
            assert!(pttl(&server, text) > 3_659 * 86_400_000, "{text}");
        }
    }
}

/// If what began a step is refunded, the step begins anew, and the meter counts for longer.
#[tokio::test]
async fn a_step_that_begins_anew_is_kept_until_its_end() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    let text = "100/h from first request";
    let later = NOW + Duration::from_secs(1_800);
    let charge = async |now, cost| {
        let claim = [Claim { id: id(text), cost, meter: meter(text) }];
        let answer = store.claim(Claims::new(now, Mode::Charge, &claim).unwrap()).await.unwrap();
        answer.verdicts[0].receipt
    };
    let receipt = charge(NOW, 1).await;
    charge(later, 99).await;
    let before = pttl(&server, text);
    let refund = ratelimit_core::store::Refund { id: id(text), cost: 1, meter: meter(text), receipt };
    store.refund(later, &[refund]).await.unwrap();
    let after = pttl(&server, text);
    assert!(before < 3_600_000 && after > 3_600_000 && after <= before + 1_800_000, "{before}, {after}");
}

/// Limits with different leases share one log: when the lease is changed, or differs between callers.
#[tokio::test]
async fn a_log_is_kept_for_the_longest_of_its_leases() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    // The second charge has room in the value, the third does not.
    for (lease, cost) in [("1h", 1), ("1min", 1), ("1min", 20)] {
        let claim = [Claim { id: id("held"), cost, meter: meter(&format!("50 at once lease {lease}")) }];
        assert!(store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await.unwrap().admitted);
        let left = pttl(&server, "held");
        assert!(left > 3_500_000, "{cost} under {lease}: kept for {left} ms");
    }
}

fn pttl(server: &Server, text: &str) -> i64 {
    let reply = server.say(&format!("PTTL \"rl:{{:k}}{text}\""));
    reply.trim().trim_start_matches(':').parse().unwrap()
}

#[tokio::test]
async fn reset_forgets_only_the_named_meters() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    for text in ["1/min", "1/min log", "1/min bucket"] {
        charge(&store, text).await.unwrap();
    }
    let forget = |scope| Claim { id: id(scope), cost: 0, meter: meter("1/min") };
    let forget = [forget("1/min"), forget("1/min log"), forget("*")];
    store.reset(Claims::new(NOW, Mode::Charge, &forget).unwrap()).await.unwrap();
    assert!(charge(&store, "1/min").await.unwrap().admitted);
    assert!(charge(&store, "1/min log").await.unwrap().admitted);
    assert!(!charge(&store, "1/min bucket").await.unwrap().admitted);
}

#[tokio::test]
async fn a_bucket_of_two_rates_is_kept_for_as_long_as_it_counts() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    let kept = || Duration::from_millis(u64::try_from(pttl(&server, "b")).unwrap());
    let mut receipts = Vec::new();
    for (text, cost, counts) in
        [("60/min burst 200", 100, 100), ("6/min burst 200", 30, 300), ("60/min burst 200", 1, 300)]
    {
        let claim = [Claim { id: id("b"), cost, meter: meter(text) }];
        let answer = store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await.unwrap();
        let left = answer.verdicts[0].reset_at.since(NOW);
        assert!(answer.admitted && left == Duration::from_secs(counts), "{left:?}");
        assert!(kept() >= left && kept() < left + Duration::from_secs(30), "{:?} for {left:?}", kept());
        receipts.push(Refund { id: id("b"), cost, meter: meter(text), receipt: answer.verdicts[0].receipt });
    }
    // Half of the slow units are refunded; the other half count until they have drained.
    store.refund(NOW, &[Refund { cost: 15, ..receipts[1] }]).await.unwrap();
    let peek = [Claim { id: id("b"), cost: 0, meter: meter("60/min burst 200") }];
    let peeked = store.claim(Claims::new(NOW, Mode::Peek, &peek).unwrap()).await.unwrap();
    assert_eq!(
        (peeked.verdicts[0].remaining, peeked.verdicts[0].reset_at.since(NOW)),
        (84, Duration::from_secs(150))
    );
    assert!(kept() >= Duration::from_secs(150), "{:?}", kept());
}

/// At most twelve bytes for each unit, whatever their number and the way they were charged.
#[tokio::test]
async fn a_log_takes_little_memory() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect_with(config(&server)).await.unwrap();
    for (units, step) in [(1_000u64, 1), (100_000, 97), (5_000, 5_000)] {
        let scope = format!("log {units}");
        let meter = Meter::Log(Log::new(1_000_000, 3_600_000_000_000).unwrap());
        let mut now = NOW.as_nanos();
        let mut logged = 0;
        while logged < units {
            let claim = [Claim { id: id(&scope), cost: step.min(units - logged), meter }];
            let claims = Claims::new(Timestamp::from_nanos(now), Mode::Charge, &claim).unwrap();
            assert!(store.claim(claims).await.unwrap().admitted);
            logged += step;
            now += 1_000;
        }
        let reply = server.say(&format!("MEMORY USAGE \"rl:{{:k}}{scope}\""));
        let bytes: u64 = reply.trim().trim_start_matches(':').parse().unwrap();
        println!("{units} units by {step}: {bytes} bytes, {:.2} a unit", bytes as f64 / units as f64);
        assert!(bytes <= units * 12, "{bytes} for {units}");
    }
}
