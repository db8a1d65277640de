//! Draws what each algorithm admits of the same traffic, into `docs/pictures/algorithms.svg`.
//!
//! `cargo run -p docs --bin pictures`
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use ratelimit_memory::{Limit, ManualClock, MemoryStore, RateLimiter, Timestamp};

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
const BEGIN: u64 = 45;
const END: u64 = 200;
const A_SECOND: u64 = 5;

/// How long the axis is, in seconds.
const LENGTH: u64 = 240;

const WIDTH: i32 = 960;
const LEFT: i32 = 20;
const RIGHT: i32 = WIDTH - 20;
const TOP: i32 = 76;
const ROW: i32 = 66;
const BAR: i32 = 30;

const INK: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(110, 110, 110);
const FAINT: RGBColor = RGBColor(222, 222, 222);
const BLUE: RGBColor = RGBColor(0, 114, 178);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Units that were used in each second: of a queue, when their turn came.
fn admitted(text: &str) -> Result<Vec<u32>> {
    let limit: Limit = text.parse()?;
    let start = Timestamp::from_secs(1_800_000_000);
    let clock = ManualClock::at(start);
    let limiter = RateLimiter::new(MemoryStore::new(), limit).with_clock(clock.clone());
    let mut seconds = vec![0; usize::try_from(LENGTH)?];
    for millis in (BEGIN * 1_000..END * 1_000).step_by(usize::try_from(1_000 / A_SECOND)?) {
        clock.set(start + Duration::from_millis(millis));
        let decision = limiter.check_now("client")?;
        if decision.allowed() {
            let used = Duration::from_millis(millis) + decision.delay();
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

fn x(second: u64) -> i32 {
    let second = i32::try_from(second).unwrap_or(i32::MAX);
    LEFT + (RIGHT - LEFT) * second / i32::try_from(LENGTH).unwrap_or(1)
}

fn text(area: &Area<'_>, words: &str, at: (i32, i32), size: i32, colour: RGBColor, side: HPos) -> Result<()> {
    let style = ("sans-serif", size).into_font().color(&colour).pos(Pos::new(side, VPos::Center));
    area.draw_text(words, &style, at).map_err(|error| anyhow!("{error}"))
}

fn shape(area: &Area<'_>, corners: [(i32, i32); 2], colour: RGBColor) -> Result<()> {
    area.draw(&Rectangle::new(corners, colour.filled())).map_err(|error| anyhow!("{error}"))
}

fn row(area: &Area<'_>, number: i32, limit: &str, algorithm: &str) -> Result<()> {
    let seconds = admitted(limit)?;
    let base = TOP + number * ROW + ROW - 12;
    text(area, limit, (LEFT, base - BAR - 10), 15, INK, HPos::Left)?;
    text(area, algorithm, (LEFT + 250, base - BAR - 10), 13, GREY, HPos::Left)?;
    let most = format!("at most {} within 60 s", most_in_a_minute(&seconds));
    text(area, &most, (RIGHT, base - BAR - 10), 13, GREY, HPos::Right)?;
    shape(area, [(LEFT, base), (RIGHT, base + 1)], FAINT)?;
    for (second, count) in (0..).zip(&seconds).filter(|(_, count)| **count > 0) {
        let height = BAR * i32::try_from(*count)? / i32::try_from(A_SECOND)?;
        shape(area, [(x(second), base - height), (x(second + 1) - 1, base)], BLUE)?;
    }
    Ok(())
}

fn draw(file: &Path) -> Result<()> {
    let rows = i32::try_from(LIMITS.len())?;
    let height = TOP + rows * ROW + 30;
    let area = SVGBackend::new(file, (u32::try_from(WIDTH)?, u32::try_from(height)?)).into_drawing_area();
    area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    text(&area, "Admitted in each second", (LEFT, 22), 20, INK, HPos::Left)?;
    let traffic = format!("A client sends {A_SECOND} requests a second from second {BEGIN} to second {END}.");
    text(&area, &traffic, (LEFT, 46), 13, GREY, HPos::Left)?;
    let bottom = TOP + rows * ROW;
    for second in (0..=LENGTH).step_by(60) {
        shape(&area, [(x(second), TOP), (x(second) + 1, bottom)], FAINT)?;
        let side = if second == 0 {
            HPos::Left
        } else if second == LENGTH {
            HPos::Right
        } else {
            HPos::Center
        };
        text(&area, &format!("{second} s"), (x(second), bottom + 12), 12, GREY, side)?;
    }
    for (number, (limit, algorithm)) in (0..).zip(LIMITS) {
        row(&area, number, limit, algorithm)?;
    }
    area.present().map_err(|error| anyhow!("{error}"))
}

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pictures");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("algorithms.svg");
    draw(&file)?;
    println!("{}", file.display());
    Ok(())
}
