//! The figures of each phase, as a Markdown table.

use std::time::Duration;

use crate::client::{Answer, Outcome};
use crate::phases::{PHASES, Phase, Run};

/// The share of requests that took at most this long, in per cent, of answers in any order.
pub(crate) fn percentile(answers: &[Answer], per_cent: usize) -> Duration {
    let mut took: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    took.sort_unstable();
    let place = (took.len() * per_cent).div_ceil(100).saturating_sub(1);
    took.get(place).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1_000.0)
}

pub(crate) fn print(runs: &[Run]) {
    println!("| choice | Redis | answers/s | p50, ms | p99, ms | admitted/s | 429/s | 503/s |");
    println!("|---|---|---|---|---|---|---|---|");
    for run in runs {
        let mut from = 0;
        for (place, (phase, seconds)) in PHASES.into_iter().enumerate() {
            let (begin, end) = (Duration::from_secs(from), Duration::from_secs(from + seconds));
            from += seconds;
            let within = run.answers.iter().filter(|answer| (begin..end).contains(&answer.at));
            let answers: Vec<Answer> = within.copied().collect();
            let count = |outcome| answers.iter().filter(|answer| answer.outcome == outcome).count() as u64;
            let each = [Outcome::Admitted, Outcome::Refused, Outcome::Failed].map(|of| count(of) / seconds);
            let state = match phase {
                Phase::Up if place == 0 => "up",
                Phase::Up => "up again",
                Phase::Frozen => "frozen",
                Phase::Killed => "killed",
            };
            println!(
                "| {} | {state} | {} | {} | {} | {} | {} | {} |",
                run.choice.name(),
                answers.len() as u64 / seconds,
                millis(percentile(&answers, 50)),
                millis(percentile(&answers, 99)),
                each[0],
                each[1],
                each[2],
            );
        }
    }
}
