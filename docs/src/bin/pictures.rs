//! Draws what each algorithm admits of the same traffic, into `docs/pictures/algorithms.svg`.
//!
//! `cargo run -p docs --bin pictures`
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ratelimit_memory::{Limit, ManualClock, MemoryStore, RateLimiter, Timestamp};
use ratelimit_plot::{Axis, Colour, Panel, Picture, Shape};

/// The same rate, by each algorithm.
const LIMITS: [(&str, &str); 8] = [
    ("60/min fixed", "fixed window"),
    ("60/min", "sliding-window counter"),
    ("60/min precision 10s", "segmented sliding window"),
    ("60/min precision 10s strict", "segmented, strict"),
    ("60/min log", "sliding log"),
    ("60/min burst 20", "token bucket"),
    ("60/min leaky burst 20", "leaky bucket"),
    ("60/min queue burst 20", "leaky bucket as a queue"),
];

/// The traffic: five requests a second, which is five times the limit, between these two seconds.
const BEGIN: u32 = 45;
const END: u32 = 200;
const A_SECOND: u32 = 5;

/// How long the axis is, in seconds.
const LENGTH: u32 = 240;

/// Units that were used in each second: of a queue, when their turn came.
fn admitted(text: &str) -> Result<Vec<u32>> {
    let limit: Limit = text.parse()?;
    let start = Timestamp::from_secs(1_800_000_000);
    let clock = ManualClock::at(start);
    let limiter = RateLimiter::new(MemoryStore::new(), limit).with_clock(clock.clone());
    let mut seconds = vec![0; usize::try_from(LENGTH)?];
    for millis in (BEGIN * 1_000..END * 1_000).step_by(usize::try_from(1_000 / A_SECOND)?) {
        let sent = Duration::from_millis(millis.into());
        clock.set(start + sent);
        let decision = limiter.check_now("client")?;
        if decision.allowed() {
            let used = sent + decision.delay();
            if let Some(count) = seconds.get_mut(usize::try_from(used.as_secs())?) {
                *count += 1;
            }
        }
    }
    Ok(seconds)
}

/// The most in 60 seconds one after another.
fn most_in_a_minute(seconds: &[u32]) -> u32 {
    seconds.windows(60).map(|minute| minute.iter().sum()).max().unwrap_or(0)
}

fn panel((limit, algorithm): (&str, &str)) -> Result<Panel> {
    let seconds = admitted(limit)?;
    let bars = (0..).map(f64::from).zip(&seconds);
    let bar = |(second, count): (f64, &u32)| {
        Shape::block(second..second + 0.8, 0.0..f64::from(*count), Colour::BLUE)
    };
    Ok(Panel {
        heading: limit.to_owned(),
        note: format!("{algorithm}: at most {} within 60 s", most_in_a_minute(&seconds)),
        height: 36,
        y: Axis::linear(0.0..f64::from(A_SECOND)),
        shapes: bars.filter(|(_, count)| **count > 0).map(bar).collect(),
    })
}

fn main() -> Result<()> {
    let minutes = (0..=LENGTH / 60).map(|minute| (f64::from(minute * 60), format!("{} s", minute * 60)));
    let picture = Picture {
        width: 900,
        title: "Admitted in each second".to_owned(),
        notes: vec![format!(
            "A client sends {A_SECOND} requests a second from second {BEGIN} to second {END}."
        )],
        x: Axis { marks: vec![minutes.collect()], ..Axis::linear(0.0..f64::from(LENGTH)) },
        panels: LIMITS.into_iter().map(panel).collect::<Result<_>>()?,
        ..Picture::default()
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("pictures/algorithms.svg");
    picture.write(&file)?;
    println!("{}", file.display());
    Ok(())
}
