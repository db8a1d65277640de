//! Concurrent calls are linearizable: some order of them, in which no call comes before one that had ended when it began, gives
//! the answers of the model.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::{Answer, Claims, Mode, Timestamp};

use super::beside::{Part, forget, give_back, put};
use crate::bench::{Bench, storm};
use crate::case::{Case, Need};
use crate::clock::START;
use crate::failure::{CaseResult, Failure, ensure};
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

/// The keys of a history. A history is linearizable if the calls on each of its keys are.
const KEYS: usize = 2;

pub(super) fn cases() -> Vec<Case> {
    let cases = Case::for_each(
        &Kind::METERS,
        "atomic/histories",
        "The answers to concurrent claims, peeks, refunds and resets are those of the same calls one by one, in an order that \
         agrees with their begins and ends.",
        histories,
    );
    cases.into_iter().map(|case| case.needs(Need::ExactPerKey).needs(Need::OneCount)).collect()
}

/// What a client has called, and the answer.
#[derive(Clone, Debug)]
enum Call {
    Claim { mode: Mode, cost: u64, found: Figures },
    Refund { cost: u64, receipt: Timestamp },
    Reset,
}

/// The figures of an answer that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    admitted: bool,
    charged: bool,
    remaining: u64,
}

/// A call with the ticks of a common counter before and after it.
#[derive(Clone, Debug)]
struct Recorded {
    client: usize,
    key: usize,
    call: Call,
    begin: u64,
    end: u64,
}

async fn histories(bench: Bench, kind: Kind) -> CaseResult {
    let handles = bench.handles(CLIENTS).await?;
    let limit = kind.limit(9, Duration::from_secs(3_600))?;
    for round in 0..ROUNDS {
        let parts: Arc<[Part]> =
            (0..KEYS).map(|key| Part::new(&limit, format!("{round} {key}"), 0)).collect();
        let ticks = Arc::new(AtomicU64::new(0));
        let seed = bench.seed.wrapping_add((round * CLIENTS) as u64);
        let calls = storm(&handles, CLIENTS, |handle, client| {
            let random = Random::new(seed.wrapping_add(client as u64));
            one_after_another(handle, client, random, parts.clone(), ticks.clone())
        });
        let calls = calls.await?.concat();
        for (key, part) in parts.iter().enumerate() {
            let of_key = calls.iter().filter(|call| call.key == key).cloned();
            History::new(part, of_key.collect()).check()?;
        }
    }
    Ok(())
}

async fn one_after_another(
    handle: Handle,
    client: usize,
    mut random: Random,
    parts: Arc<[Part]>,
    ticks: Arc<AtomicU64>,
) -> CaseResult<Vec<Recorded>> {
    let mut calls = Vec::new();
    // What it may refund: the key, the cost and the receipt.
    let mut held = Vec::new();
    for _ in 0..CALLS {
        let what = random.below(100);
        let (mut key, mut cost) = (random.place(KEYS), random.between(1, 4));
        let refunded = if (45..65).contains(&what) { held.pop() } else { None };
        let begin = ticks.fetch_add(1, Ordering::SeqCst);
        let call = if let Some((of, units, receipt)) = refunded {
            (key, cost) = (of, units);
            give_back(&handle, START, &[(parts[key].of(cost), receipt)]).await??;
            Call::Refund { cost, receipt }
        } else if what >= 95 {
            forget(&handle, START, &[parts[key].clone()]).await??;
            Call::Reset
        } else {
            let peeks = what >= 65;
            // Beside a charge, a store need not read what a cost of zero asks for.
            cost = if peeks && what.is_multiple_of(2) { 0 } else { cost };
            let mode = if peeks { Mode::Peek } else { Mode::Charge };
            let answer = put(&handle, START, mode, &[parts[key].of(cost)]).await??;
            ensure!(answer.verdicts.len() == 1, "{} verdicts for one claim", answer.verdicts.len());
            if answer.charged {
                held.push((key, cost, answer.verdicts[0].receipt));
            }
            Call::Claim { mode, cost, found: Figures::of(&answer) }
        };
        let end = ticks.fetch_add(1, Ordering::SeqCst);
        calls.push(Recorded { client, key, call, begin, end });
        tokio::task::yield_now().await;
    }
    Ok(calls)
}

/// The calls on one key.
struct History<'a> {
    part: &'a Part,
    calls: Vec<Recorded>,
    /// What has led to no order: which calls were made, and the model after them.
    failed: HashSet<(u64, String)>,
    /// The longest order so far.
    longest: Vec<usize>,
}

impl<'a> History<'a> {
    fn new(part: &'a Part, mut calls: Vec<Recorded>) -> Self {
        calls.sort_by_key(|call| call.begin);
        Self { part, calls, failed: HashSet::new(), longest: Vec::new() }
    }

    /// Looks for an order, as Wing and Gong do: by trying each call that may be the next one.
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
            if self.calls[place].call.agrees(self.part, &mut model)? {
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
        let remaining = answer.verdicts[0].remaining;
        Self { admitted: answer.admitted, charged: answer.charged, remaining }
    }
}

impl Call {
    /// Makes the call on the model. Returns whether the model gives the same answer.
    fn agrees(&self, part: &Part, model: &mut Model) -> CaseResult<bool> {
        match self {
            Self::Claim { mode, cost, found } => {
                let part = part.of(*cost);
                let expected = model.claim(&Claims::new(START, *mode, &[part.claim()])?);
                Ok(*found == Figures::of(&expected))
            }
            Self::Refund { cost, receipt } => {
                model.refund(START, &[part.of(*cost).refund(*receipt)]);
                Ok(true)
            }
            Self::Reset => {
                model.reset(Claims::new(START, Mode::Charge, &[part.claim()])?);
                Ok(true)
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Claim { mode, cost, found: Figures { admitted, remaining, .. } } => {
                let word = if *admitted { "admitted" } else { "refused" };
                format!("{mode:?} {cost}: {word}, {remaining} left")
            }
            Self::Refund { cost, .. } => format!("refund {cost}"),
            Self::Reset => "reset".to_owned(),
        }
    }
}
