//! Compares the SQL with core: random slices, decided by both, verdict by verdict, on limits that change while in use.
#![allow(clippy::cast_possible_truncation)] // random numbers that are small

mod common;

use std::time::Duration;

use common::Schema;
use ratelimit_core::meter::{Bucket, MAX_UNITS, Meter, Window};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Timestamp};
use ratelimit_postgres::PostgresStore;
use ratelimit_testbed::differential::{
    Differential, Kind, MAX_SEGMENT, Random, cost, instant, kind, meter, span,
};

async fn differential() -> (Differential<PostgresStore>, Schema) {
    let schema = Schema::new();
    // The test's clock is not the server's: nothing may expire during the test.
    let config = schema.config().clock_slack(Duration::from_secs(86_400));
    let store = PostgresStore::connect_with(config).await.unwrap();
    store.migrate().await.unwrap();
    // The clock goes back by at most what a store must tolerate.
    (Differential::new(store, BACK), schema)
}

const BACK: Duration = Duration::from_secs(1);

#[tokio::test]
async fn the_functions_decide_as_core_does() {
    let (mut both, _schema) = differential().await;
    both.histories(150, 120).await;
}

#[tokio::test]
async fn buckets_of_several_rates_are_decided_as_core_does() {
    let (mut both, _schema) = differential().await;
    both.rates(1_000, 40).await;
}

/// A kind of meter that can take the fast path.
fn fast_path_kind(random: &mut Random) -> Kind {
    match kind(random) {
        Kind::Window { segment, strict, offset, .. } => {
            Kind::Window { segment, carried: random.pick(&[0, 1, 1]), strict, offset }
        }
        Kind::Log | Kind::Steps { .. } => Kind::Bucket { is_queue: true },
        bucket => bucket,
    }
}

/// Another limit of this kind that the fast path can apply to the same state: a bucket keeps its interval.
fn another(before: Meter, kind: Kind, random: &mut Random) -> Meter {
    let Meter::Bucket(bucket) = before else { return meter(kind, random) };
    let most = ((1 << 61) / bucket.interval()).min(MAX_UNITS);
    let burst = random.any(most).max(1);
    Meter::Bucket(bucket.with_rate(bucket.interval(), burst).unwrap())
}

/// The fast path decides everything that it can: a wrong "no" would only be slower, because the general path would decide.
#[tokio::test]
async fn the_fast_path_decides_alone() {
    let (mut both, schema) = differential().await;
    schema.run("ALTER FUNCTION {s}.claim_v1 RENAME TO gone").await;
    let mut random = Random(5);
    let mut counts = [0, 0];
    for round in 0..400u64 {
        let kinds = [0; 3].map(|_| fast_path_kind(&mut random));
        let mut meters = kinds.map(|kind| meter(kind, &mut random));
        let keys = [0, 1, 2].map(|nth| [round, nth].map(u64::to_be_bytes).concat());
        let ids = [0, 1, 2].map(|nth| MeterId { namespace: "n", scope: "s", key: &keys[nth] });
        let mut now = 1_700_000_000_000_000_000 + random.any(1 << 60);
        let mut hints = [None; 3];
        for _ in 0..20 {
            // One claim; several on one meter, at one instant each, often with one limit; one on each of several meters.
            let places: &[usize] = random.pick(&[&[0], &[0, 0], &[0; 5], &[0, 1], &[2, 0, 1], &[1, 0, 1]]);
            let still = random.below(2) == 0;
            let claims: Vec<_> = places
                .iter()
                .map(|nth| {
                    if random.below(3) == 0 && !still {
                        meters[*nth] = another(meters[*nth], kinds[*nth], &mut random);
                    }
                    let meter = meters[*nth];
                    now = if still {
                        now + random.below(1_000)
                    } else {
                        instant(&mut random, now, BACK.as_nanos() as u64, span(&meter), hints[*nth])
                    };
                    let cost = cost(&mut random, meter.limit()).max(1);
                    (Timestamp::from_nanos(now), [Claim { id: ids[*nth], cost, meter }])
                })
                .collect();
            let slices: Vec<_> =
                claims.iter().map(|(now, claim)| Claims::new(*now, Mode::Charge, claim).unwrap()).collect();
            for (answer, nth) in both.claim_many(&slices).await.into_iter().zip(places) {
                counts[usize::from(answer.admitted)] += 1;
                hints[*nth] = answer.verdicts[0].fits_at.filter(|_| !answer.admitted);
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 2_000), "one-sided: {counts:?}");
}

/// A bucket without debt is charged at any rate; a nanosecond earlier, another rate takes the general path.
#[tokio::test]
async fn the_fast_path_decides_drained_buckets_alone() {
    let (mut both, schema) = differential().await;
    schema.run("ALTER FUNCTION {s}.claim_v1 RENAME TO gone").await;
    let second = 1_000_000_000;
    // Alone, next to another meter, and several on one.
    for (keys, most) in [(&[b"a"][..], 1), (&[b"b", b"c"], 1), (&[b"d", b"d"], 2), (&[b"e", b"e", b"f"], 2)] {
        let (mut now, mut drains_in) = (1_700_000_000_000_000_000, 0);
        for interval in [second, 60 * second, second] {
            let meter = Meter::Bucket(Bucket::with_interval(interval, 10).unwrap());
            let id = |key| MeterId { namespace: "n", scope: "s", key };
            let claims: Vec<_> =
                keys.iter().map(|key| [Claim { id: id(&key[..]), cost: 4, meter }]).collect();
            let slices = |now| -> Vec<_> {
                let now = Timestamp::from_nanos(now);
                claims.iter().map(|claim| Claims::new(now, Mode::Charge, claim).unwrap()).collect()
            };
            if drains_in > 0 {
                let answers = both.store.claim_many(&slices(now + drains_in - 1)).await;
                assert!(answers.iter().all(Result::is_err), "{answers:?}");
            }
            now += drains_in * most;
            assert!(both.claim_many(&slices(now)).await.iter().all(|answer| answer.admitted));
            drains_in = 4 * interval;
        }
    }
}

/// Ten units of the previous segment count as five in its middle, and not a nanosecond earlier: alone and with another.
#[tokio::test]
async fn the_fast_path_decides_ties_alone() {
    let (mut both, schema) = differential().await;
    schema.run("ALTER FUNCTION {s}.claim_v1 RENAME TO gone").await;
    let segment = 1_000_000_000;
    let meter = Meter::Window(Window::new(10, segment, 1, false, 0).unwrap());
    for keys in [&[b"a"][..], &[b"b", b"c"]] {
        let middle = 1_700_000_000_500_000_000 + segment;
        for (now, cost, fits) in [(middle - segment, 10, true), (middle - 1, 5, false), (middle, 5, true)] {
            let claims: Vec<_> = keys
                .iter()
                .map(|key| [Claim { id: MeterId { namespace: "n", scope: "s", key: &key[..] }, cost, meter }])
                .collect();
            let now = Timestamp::from_nanos(now);
            let slices: Vec<_> =
                claims.iter().map(|claim| Claims::new(now, Mode::Charge, claim).unwrap()).collect();
            for answer in both.claim_many(&slices).await {
                assert_eq!(answer.admitted, fits, "{slices:?}");
            }
        }
    }
}

/// Ties and near ties of the weighted comparison, `oldest * (S - e) = room * S` plus or minus one, at sizes where a double
/// is not precise enough.
#[tokio::test]
async fn ties_of_the_weighted_comparison_are_decided_exactly() {
    let (mut both, _schema) = differential().await;
    let mut random = Random(77);
    let mut counts = [0, 0];
    for round in 0..200u64 {
        let key = round.to_be_bytes();
        let id = MeterId { namespace: "", scope: "tie", key: &key };
        let carried = random.pick(&[1, 1, 2, 5]);
        let segment = (1 + random.any(MAX_SEGMENT / u64::from(carried) - 1)) * 1_000;
        // The largest counts give the closest ties.
        let oldest =
            if random.below(2) == 0 { MAX_UNITS - random.below(1_000) } else { random.any(MAX_UNITS).max(1) };
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
        for limit in [room - 1, room, room + 1] {
            for nanos in [0, 1, 2, 999, 1_000, 1_001] {
                for at in [begin + elapsed.saturating_sub(nanos), begin + (elapsed + nanos).min(segment - 1)]
                {
                    // With a cost of one, it fits if and only if `oldest` weighted is at most `limit`.
                    let claim = [Claim { id, cost: 1, meter: window((limit + 1).min(MAX_UNITS)) }];
                    let claims = Claims::new(Timestamp::from_nanos(at), Mode::Peek, &claim).unwrap();
                    let answer = both.claim(claims).await;
                    counts[usize::from(answer.admitted)] += 1;
                    if carried == 1 && nanos < 2 {
                        charged_on_the_fast_path(&mut both, claims, then, oldest, None).await;
                        // With a unit in the newest segment already, and room for it.
                        let claim = [Claim { meter: window((limit + 2).min(MAX_UNITS)), ..claim[0] }];
                        let claims = Claims::new(Timestamp::from_nanos(at), Mode::Peek, &claim).unwrap();
                        let begin = Some(Timestamp::from_nanos(begin));
                        charged_on_the_fast_path(&mut both, claims, then, oldest, begin).await;
                    }
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}

/// The same claim as a charge on the fast path, alone and next to another meter's; a peek at the result shows whether the
/// server decided the same. Afterwards the state is as before. Where there is a `begin`, a unit was charged then.
async fn charged_on_the_fast_path(
    both: &mut Differential<PostgresStore>,
    claims: Claims<'_>,
    then: Timestamp,
    oldest: u64,
    begin: Option<Timestamp>,
) {
    for alone in [true, false] {
        if let Some(begin) = begin {
            let claims = Claims::new(begin, Mode::Force, &claims).unwrap();
            both.claim(claims).await;
        }
        let charge = claims.with_mode(Mode::Charge);
        if alone {
            both.claim(charge).await;
        } else {
            let mirrored = [Claim { id: MeterId { scope: "beside", ..claims[0].id }, ..claims[0] }];
            let mirrored = Claims::new(charge.now(), Mode::Charge, &mirrored).unwrap();
            both.claim_many(&[charge, mirrored]).await;
        }
        let look = claims.with_mode(Mode::Peek);
        both.claim(look).await;
        both.reset(claims).await;
        let claim = [Claim { cost: oldest, ..claims[0] }];
        let claims = Claims::new(then, Mode::Force, &claim).unwrap();
        both.claim(claims).await;
    }
}
