//! Compares the scripts with core: random slices, decided by both, verdict by verdict.
#![allow(clippy::cast_possible_truncation)] // random numbers that are small

mod common;

use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, MAX_UNITS, Meter, Window};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::differential::{Differential, MAX_SEGMENT, Random};

async fn differential(server: &common::Server) -> Differential<RedisStore> {
    let config = RedisConfig::from_url(&server.url())
        .unwrap()
        .timeout(Duration::from_secs(20))
        // The test's clock is not the server's: nothing may expire during the test.
        .clock_slack(Duration::from_secs(86_400));
    // The clock goes back by at most what a store must tolerate.
    Differential::new(RedisStore::connect_with(config).await.unwrap(), Duration::from_secs(1))
}

#[tokio::test]
async fn scripts_decide_as_core_does() {
    let server = common::Server::start(&[]).await;
    differential(&server).await.histories(300, 120).await;
}

#[tokio::test]
async fn buckets_of_several_rates_are_decided_as_core_does() {
    let server = common::Server::start(&[]).await;
    differential(&server).await.rates(1_000, 40).await;
}

/// The time in which units drain at another interval, to the nanosecond: the largest numbers, and products just below, at
/// and above a multiple of the divisor, where a double is not precise enough.
#[tokio::test]
async fn conversions_between_intervals_are_exact() {
    let script = concat!(
        include_str!("../src/wire/scripts/numbers.lua"),
        include_str!("../src/wire/scripts/debt.lua"),
        "local th, tl, fh, fl, bh, bl = unpack('>I4I4I4I4I4I4', ARGV[1])\n",
        "local h, l, more = convert(th, tl, fh, fl, bh, bl)\n",
        "return pack('>I4I4B', h, l, more and 1 or 0)",
    );
    let server = common::Server::start(&[]).await;
    let client = redis::Client::open(server.url()).unwrap();
    // Not the client's half second: a machine may be busy.
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let mut random = Random(79);
    let mut near = 0;
    for _ in 0..4_000 {
        let from = random.any(MAX_SEGMENT * 1_000).max(2);
        let by = if random.below(2) == 0 { random.any(from) } else { from - random.below(from.min(9)) };
        let by = by.clamp(1, from);
        let any = random.any((1 << 62) - 1);
        let time = match inverse(by, from) {
            Some(inverse) if random.below(2) == 0 => {
                near += 1;
                let rest = random.pick(&[0, 1, from - 1]);
                let time = (u128::from(inverse) * u128::from(rest) % u128::from(from)) as u64;
                time + from * random.below(((1 << 62) - 1 - time) / from)
            }
            _ => any,
        };
        let argument: Vec<u8> = [time, from, by].iter().flat_map(|number| number.to_be_bytes()).collect();
        let reply: Vec<u8> =
            redis::cmd("EVAL").arg(script).arg(0).arg(argument).query_async(&mut connection).await.unwrap();
        let (quotient, more) = reply.split_at(8);
        let product = u128::from(time) * u128::from(by);
        let whole = (product / u128::from(from)) as u64;
        let more_expected = u8::from(product % u128::from(from) > 0);
        assert_eq!(
            (quotient, more),
            (&whole.to_be_bytes()[..], &[more_expected][..]),
            "{time} * {by} / {from}"
        );
    }
    assert!(near > 500, "{near} near a multiple");
}

/// The multiplicative inverse of `number` modulo `modulus`.
fn inverse(number: u64, modulus: u64) -> Option<u64> {
    let (mut one, mut other) = ((i128::from(modulus), 0), (i128::from(number % modulus), 1));
    while other.0 != 0 {
        let times = one.0 / other.0;
        (one, other) = (other, (one.0 - times * other.0, one.1 - times * other.1));
    }
    (one.0 == 1).then(|| one.1.rem_euclid(i128::from(modulus)) as u64)
}

/// Ties and near ties of the weighted comparison, `oldest * (S - e) = room * S` plus or minus one, at sizes where a double
/// is not precise enough.
#[tokio::test]
async fn ties_of_the_weighted_comparison_are_decided_exactly() {
    let server = common::Server::start(&[]).await;
    let mut both = differential(&server).await;
    let mut random = Random(77);
    let mut counts = [0, 0];
    for round in 0..2_000u64 {
        let key = round.to_be_bytes();
        let id = MeterId { namespace: "", scope: "tie", key: &key };
        let carried = random.pick(&[1, 1, 2, 5]);
        let segment = (1 + random.any(MAX_SEGMENT / u64::from(carried) - 1)) * 1_000;
        let oldest = random.any(MAX_UNITS).max(1);
        // A random instant of the segment in which `oldest` is weighted, and a room as close to a tie as possible.
        let elapsed = if random.below(4) == 0 { 0 } else { random.below(segment) };
        let tie = u128::from(oldest) * u128::from(segment - elapsed);
        let room = (tie.div_ceil(u128::from(segment)) as u64).min(MAX_UNITS - 1);
        let start = 1_700_000_000_000_000_000 / segment + 1;
        let window =
            |limit: u64| Meter::Window(Window::new(limit.max(1), segment, carried, false, 0).unwrap());
        let then = Timestamp::from_nanos(start * segment);
        let begin = (start + u64::from(carried)) * segment;
        if begin + segment >= 1 << 62 {
            continue;
        }
        let claim = [Claim { id, cost: oldest, meter: window(MAX_UNITS) }];
        let claims = Claims::new(then, Mode::Force, &claim).unwrap();
        both.claim(claims).await;
        // Charges and peeks take different paths; the first charge that fits ends the tie.
        let mode = if round % 2 == 0 { Mode::Peek } else { Mode::Charge };
        let instants = [0, 1, 2, 999, 1_000, 1_001].into_iter().flat_map(|nanos| {
            [begin + elapsed.saturating_sub(nanos), begin + (elapsed + nanos).min(segment - 1)]
        });
        let trials = [room - 1, room, room + 1]
            .into_iter()
            .flat_map(|limit| instants.clone().map(move |at| (limit, at)));
        for (limit, at) in trials {
            // With a cost of one, it fits if and only if `oldest` weighted is at most `limit`.
            let claim = [Claim { id, cost: 1, meter: window((limit + 1).min(MAX_UNITS)) }];
            let claims = Claims::new(Timestamp::from_nanos(at), mode, &claim).unwrap();
            let answer = both.claim(claims).await;
            counts[usize::from(answer.admitted)] += 1;
            if answer.charged {
                break;
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 5_000), "{counts:?}");
}

/// A window that was charged a segment later than the caller's time is decided on the general path, in a batch with others
/// that are not.
#[tokio::test]
async fn late_callers_get_the_same_answers_alone_and_in_a_batch() {
    const SECOND: u64 = 1_000_000_000;
    let server = common::Server::start(&[]).await;
    let mut both = differential(&server).await;
    let mut counts = [0, 0];
    for (nth, (carried, strict)) in [(0, false), (0, true), (1, false), (1, true)].into_iter().enumerate() {
        let meter = Meter::Window(Window::new(10, SECOND, carried, strict, 0).unwrap());
        for together in [false, true] {
            let key = [u8::try_from(nth).unwrap(), u8::from(together)];
            let claim =
                |scope, cost| [Claim { id: MeterId { namespace: "", scope, key: &key }, cost, meter }];
            let at = |millis: u64| Timestamp::from_nanos(1_700_000_000 * SECOND + millis * 1_000_000);
            let (six, three, one) = (claim("ahead", 6), claim("ahead", 3), claim("ahead", 1));
            let (known, fresh) = (claim("known", 1), claim("fresh", 1));
            let slice = |millis, claim| Claims::new(at(millis), Mode::Charge, claim).unwrap();
            both.claim(slice(900, &six)).await;
            both.claim(slice(900, &known)).await;
            both.claim(slice(1_500, &three)).await;
            for step in 0..4 {
                let slices = [&one, &known, &one, &fresh, &one].map(|claim| slice(950 + step, claim));
                let answers = if together {
                    both.claim_many(&slices).await
                } else {
                    let mut answers = Vec::new();
                    for slice in slices {
                        answers.push(both.claim(slice).await);
                    }
                    answers
                };
                answers.iter().for_each(|answer| counts[usize::from(answer.admitted)] += 1);
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 40), "{counts:?}");
}

/// In a batch a claim similar to the one before it is encoded as its instant only: batches of often similar claims, on keys
/// that occur once or several times, at instants around the ends of segments.
#[tokio::test]
async fn similar_claims_in_a_batch_are_decided_as_core_does() {
    const SEGMENT: u64 = 1_000_000_000;
    let server = common::Server::start(&[]).await;
    let mut both = differential(&server).await;
    let mut random = Random(78);
    let window =
        |limit, carried, strict| Meter::Window(Window::new(limit, SEGMENT, carried, strict, 0).unwrap());
    let bucket = |interval, burst| Meter::Bucket(Bucket::with_interval(interval, burst).unwrap());
    let meters = [
        ("fixed", [window(3, 0, false), window(6, 0, false)]),
        ("sliding", [window(3, 1, false), window(6, 1, false)]),
        ("strict", [window(3, 1, true), window(6, 1, true)]),
        ("segments", [window(3, 3, false), window(6, 3, false)]),
        ("bucket", [bucket(SEGMENT / 5, 5), bucket(SEGMENT / 5, 9)]),
        ("other interval", [bucket(SEGMENT / 5, 5), bucket(SEGMENT / 9, 9)]),
    ];
    let (mut now, mut counts) = (1_700_000_000 * SEGMENT, [0, 0]);
    for round in 0..600_u64 {
        // After some rounds, a meter is equivalent to a new one.
        let keys: Vec<_> = (0..12).map(|key| [round / 20, key].map(u64::to_be_bytes).concat()).collect();
        let once = round % 2 == 0;
        let shift = random.below(keys.len() as u64) as usize;
        let (mut scope, mut which, mut cost) = (0, 0, 1);
        let claims: Vec<_> = (0..2 + random.below(11) as usize)
            .map(|nth| {
                if random.below(4) == 0 {
                    scope = random.below(meters.len() as u64) as usize;
                }
                if random.below(4) == 0 {
                    which = random.below(2) as usize;
                }
                if random.below(4) == 0 {
                    cost = 1 + random.below(3);
                }
                let key = if once { (nth + shift) % keys.len() } else { random.below(4) as usize };
                let (scope, limits) = meters[scope];
                [Claim { id: MeterId { namespace: "", scope, key: &keys[key] }, cost, meter: limits[which] }]
            })
            .collect();
        now += random.pick(&[0, 0, 1, 1_000, 1_000, SEGMENT / 7, SEGMENT - now % SEGMENT, SEGMENT]);
        let slices: Vec<_> = claims
            .iter()
            .map(|claim| {
                // Some are a little behind, in the previous segment if there was a boundary.
                let at = now - random.pick(&[0, 0, 0, 1, 999, SEGMENT / 3]);
                Claims::new(Timestamp::from_nanos(at), Mode::Charge, claim).unwrap()
            })
            .collect();
        for answer in both.claim_many(&slices).await {
            counts[usize::from(answer.admitted)] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}
