//! Concurrent calls are linearizable: there is an order in which the model gives the same answers, and in which each call
//! comes after all calls that had ended when it started.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::Limit;
use ratelimit_core::store::{Answer, Claim, Claims, Mode, Receipt};

use super::mirrored::{Part, forget, give_back, put};
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::START;
use crate::failure::{CaseResult, Failure, ensure_eq};
use crate::kind::Kind;
use crate::model::Model;
use crate::random::Random;
use crate::subject::Handle;

/// Histories of a case. Each has new keys.
const ROUNDS: usize = 25;

/// The clients of a history. Each has a handle, and makes one call after another.
const CLIENTS: usize = 4;

/// The calls of a client.
const CALLS: usize = 8;

/// Quota and hours of the limits of the key of a history. A call is on one of them, or on both.
const LIMITS: [(u64, u64); 2] = [(9, 1), (7, 2)];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::METERS,
        "atomic/histories",
        "The answers to concurrent claims, forced charges, peeks, refunds and resets on one or two limits of a key are those \
         of the same calls one by one, in an order that agrees with their begins and ends.",
        |bench, kind| async move {
            let [one, other] =
                LIMITS.map(|(quota, hours)| kind.limit(quota, Duration::from_secs(hours * 3_600)));
            histories(bench, [one?, other?]).await
        },
    );
    cases.push(Case::new(
        "atomic/histories-of-totals",
        "The answers of concurrent calls on two totals are possible in some order.",
        |bench| async move { histories(bench, [limit("9 in total")?, limit("7 in total name other")?]).await },
    ));
    cases.into_iter().map(|case| case.needs(Need::ExactPerKey).needs(Need::OneCount)).collect()
}

/// What a client has called, and the answer.
#[derive(Clone, Debug)]
enum Call {
    Claim {
        mode: Mode,
        parts: Vec<Part>,
        found: Figures,
    },
    /// Of one meter. Other calls may come between the meters of a refund or a reset.
    Refund(Part, Receipt),
    Reset(Part),
}

/// The figures of an answer that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Figures {
    admitted: bool,
    charged: bool,
    remaining: Vec<u64>,
}

/// A call with the ticks of a common counter before and after it.
#[derive(Clone, Debug)]
struct Recorded {
    client: usize,
    call: Call,
    begin: u64,
    end: u64,
}

async fn histories(bench: Bench, limits: [Limit; 2]) -> CaseResult {
    let handles = bench.handles(CLIENTS).await?;
    for round in 0..ROUNDS {
        let meters: Arc<[Part]> = limits.iter().map(|limit| Part::new(limit, round.to_string(), 0)).collect();
        let ticks = Arc::new(AtomicU64::new(0));
        let seed = bench.seed.wrapping_add((round * CLIENTS) as u64);
        let calls = storm(&handles, CLIENTS, |handle, client| {
            let random = Random::new(seed.wrapping_add(client as u64));
            one_after_another(handle, client, random, meters.clone(), ticks.clone())
        });
        History::new(calls.await?.concat()).check()?;
    }
    Ok(())
}

async fn one_after_another(
    handle: Handle,
    client: usize,
    mut random: Random,
    meters: Arc<[Part]>,
    ticks: Arc<AtomicU64>,
) -> CaseResult<Vec<Recorded>> {
    let mut calls = Vec::new();
    let mut refundable: Vec<Vec<(Part, Receipt)>> = Vec::new();
    for _ in 0..CALLS {
        let what = random.below(100);
        let mut parts: Vec<Part> = meters.iter().map(|meter| meter.of(random.between(1, 4))).collect();
        match random.below(4) {
            0 => drop(parts.remove(0)),
            1 => drop(parts.pop()),
            _ => {}
        }
        let refunded = if (45..65).contains(&what) { refundable.pop() } else { None };
        let begin = ticks.fetch_add(1, Ordering::SeqCst);
        let made = if let Some(charged) = refunded {
            give_back(&handle, START, &charged).await??;
            charged.into_iter().map(|(part, receipt)| Call::Refund(part, receipt)).collect()
        } else if what >= 95 {
            forget(&handle, START, &parts).await??;
            parts.into_iter().map(Call::Reset).collect()
        } else {
            let mode = match what {
                65.. => Mode::Peek,
                ..8 => Mode::Force,
                _ => Mode::Charge,
            };
            // Only in peeks: next to a charge, a store need not read the meter of a claim that costs nothing.
            if mode == Mode::Peek && what.is_multiple_of(2) {
                parts = parts.iter().map(|part| part.of(0)).collect();
            }
            let answer = put(&handle, START, mode, &parts).await??;
            ensure_eq!(answer.verdicts.len(), parts.len(), "verdicts");
            if answer.charged {
                let receipts = answer.verdicts.iter().map(|verdict| verdict.receipt);
                refundable.push(parts.iter().cloned().zip(receipts).collect());
            }
            vec![Call::Claim { mode, parts, found: Figures::of(&answer) }]
        };
        let end = ticks.fetch_add(1, Ordering::SeqCst);
        calls.extend(made.into_iter().map(|call| Recorded { client, call, begin, end }));
        tokio::task::yield_now().await;
    }
    Ok(calls)
}

/// The calls on one key.
struct History {
    calls: Vec<Recorded>,
    /// The dead ends of the search: which calls were made, and the model after them.
    failed: HashSet<(u64, String)>,
    /// The longest order so far.
    longest: Vec<usize>,
}

impl History {
    fn new(mut calls: Vec<Recorded>) -> Self {
        calls.sort_by_key(|call| call.begin);
        Self { calls, failed: HashSet::new(), longest: Vec::new() }
    }

    /// Searches for an order with the algorithm of Wing and Gong: tries each call that may be the next one.
    fn check(mut self) -> CaseResult {
        if self.goes_on(&Model::default(), &mut Vec::new())? {
            return Ok(());
        }
        let line = |place: &usize| {
            let call = &self.calls[*place];
            format!("\n     {}..{} client {}: {}", call.begin, call.end, call.client, call.call.describe())
        };
        let rest = (0..self.calls.len()).filter(|place| !self.longest.contains(place)).collect::<Vec<_>>();
        Err(Failure::new(format!(
            "no order of these calls gives their answers; in the longest that does,{}\n     and none of these is next:{}",
            self.longest.iter().map(line).collect::<String>(),
            rest.iter().map(line).collect::<String>(),
        )))
    }

    /// Whether the calls that are not yet in `order` can follow it.
    fn goes_on(&mut self, model: &Model, order: &mut Vec<usize>) -> CaseResult<bool> {
        if order.len() > self.longest.len() {
            self.longest.clone_from(order);
        }
        let rest: Vec<usize> = (0..self.calls.len()).filter(|place| !order.contains(place)).collect();
        let Some(first_end) = rest.iter().map(|place| self.calls[*place].end).min() else { return Ok(true) };
        let made = order.iter().fold(0, |made, place| made | 1_u64 << place);
        let here = (made, format!("{model:?}"));
        if self.failed.contains(&here) {
            return Ok(false);
        }
        let next: Vec<usize> =
            rest.into_iter().filter(|place| self.calls[*place].begin < first_end).collect();
        for place in next {
            let mut model = model.clone();
            if self.calls[place].call.agrees(&mut model)? {
                order.push(place);
                if self.goes_on(&model, order)? {
                    return Ok(true);
                }
                order.pop();
            }
        }
        self.failed.insert(here);
        Ok(false)
    }
}

impl Figures {
    fn of(answer: &Answer) -> Self {
        let remaining = answer.verdicts.iter().map(|verdict| verdict.remaining).collect();
        Self { admitted: answer.admitted, charged: answer.charged, remaining }
    }
}

impl Call {
    /// Makes the call on the model. Returns whether the model gives the same answer.
    fn agrees(&self, model: &mut Model) -> CaseResult<bool> {
        match self {
            Self::Claim { mode, parts, found } => {
                let claims: Vec<Claim<'_>> = parts.iter().map(Part::claim).collect();
                let expected = model.claim(&Claims::new(START, *mode, &claims)?);
                return Ok(*found == Figures::of(&expected));
            }
            Self::Refund(part, receipt) => _ = model.refund(START, &[part.refund(*receipt)]),
            Self::Reset(part) => model.reset(Claims::new(START, Mode::Charge, &[part.claim()])?),
        }
        Ok(true)
    }

    fn describe(&self) -> String {
        let units = |part: &Part| format!("{} of {}", part.cost, part.limit.quota());
        match self {
            Self::Claim { mode, parts, found: Figures { admitted, remaining, .. } } => {
                let word = if *admitted { "admitted" } else { "refused" };
                let parts = parts.iter().map(units).collect::<Vec<_>>().join(" + ");
                format!("{mode:?} {parts}: {word}, {remaining:?} left")
            }
            Self::Refund(part, _) => format!("refund {}", units(part)),
            Self::Reset(part) => format!("reset {}", units(part)),
        }
    }
}
