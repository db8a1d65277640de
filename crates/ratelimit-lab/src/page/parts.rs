//! Parts of the page: tables, plots with their tables, comparisons and proposals.

use std::collections::BTreeSet;

use anyhow::Context as _;
use maud::{Markup, PreEscaped, html};

use super::plots;
use crate::engine::{Bucket, Series, share};
use crate::results::{Algorithms, decisions, hits, keys_hit};
use crate::suggest::{Refusals, Share, Suggestion, Tried};
use crate::table::{Table, count, date, number, percent, seconds, table};

/// The maximum number of rows of the table of a plot over time.
const ROWS: usize = 24;

/// A table that scrolls separately from the page if the screen is too narrow for it.
pub(super) fn scrolled(name: &str, table: &Table) -> Markup {
    let class = |at: usize| (at < table.text_columns).then_some("text");
    html! {
        div.scrolled role="region" aria-label=(name) tabindex="0" {
            table {
                thead {
                    tr {
                        @for (at, heading) in table.header.iter().enumerate() {
                            th scope="col" class=[class(at)] { (sentence_case(heading)) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 {
                                    th scope="row" class=[class(at)] { (cell) }
                                } @else {
                                    td class=[class(at)] { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `MEDIAN WAIT` as `Median wait`.
fn sentence_case(heading: &str) -> String {
    let mut letters = heading.chars();
    letters.next().map(|first| first.to_string() + &letters.as_str().to_lowercase()).unwrap_or_default()
}

/// A plot in both sizes, of which the style sheet shows one, and the same numbers as a table.
fn figure(
    title: &str,
    plot: impl Fn(i32) -> anyhow::Result<String>,
    caption: &str,
    table: &Table,
) -> anyhow::Result<Markup> {
    let (wide, narrow) = (plot(plots::WIDE)?, plot(plots::NARROW)?);
    Ok(html! {
        figure {
            p { strong { (title) } }
            div.wide role="img" aria-label={ (title) ". " (caption) } { (PreEscaped(wide)) }
            div.narrow role="img" aria-label={ (title) ". " (caption) } { (PreEscaped(narrow)) }
            figcaption { (caption) }
            details { summary { "The same as a table" } (scrolled(title, table)) }
        }
    })
}

/// A plot of the requests over time. `series` must have at least one bucket.
pub(super) fn rate(series: &Series) -> anyhow::Result<Markup> {
    let most = |count: fn(&Bucket) -> u64| {
        let most = series.buckets.iter().map(count).max().unwrap_or(0);
        let at = series.buckets.iter().position(|bucket| count(bucket) == most).unwrap_or(0) as u64;
        (number(most), second(series.begin + series.width * at))
    };
    let ((requests, busiest), (refused, worst)) = (most(Bucket::requests), most(|bucket| bucket.refused));
    let length = seconds(Some(share(series.width, 1)));
    let mut caption = format!("Most requests in {length}: {requests}, from {busiest}.");
    if series.buckets.iter().any(|bucket| bucket.refused > 0) {
        caption += &format!(" Most refusals in {length}: {refused}, from {worst}.");
    }
    let coarse = series.coarser(ROWS);
    let rows = (0..).zip(&coarse.buckets).map(|(at, bucket)| {
        vec![
            second(coarse.begin + coarse.width * at),
            number(bucket.requests()),
            number(bucket.admitted),
            number(bucket.refused),
            percent(share(bucket.refused, bucket.requests())),
        ]
    });
    let of_each = format!("FROM, FOR {}", seconds(Some(share(coarse.width, 1))));
    let table = table(1, &[&of_each, "REQUESTS", "ADMITTED", "REFUSED", "SHARE"], rows);
    // The shortest unit of time for which the rate in the busiest bucket is at least one request.
    let busiest = series.buckets.iter().map(Bucket::requests).max().unwrap_or(0);
    let (unit, title) = match busiest / series.width {
        1.. => (1, "Requests a second"),
        0 if busiest * 60 >= series.width => (60, "Requests a minute"),
        0 => (3_600, "Requests an hour"),
    };
    figure(title, |width| plots::rate(series, unit, width), &caption, &table)
}

/// The date and time of an instant, given in seconds since 1970.
fn second(second: u64) -> String {
    date(second.saturating_mul(1_000_000_000))
}

/// A section that shows how exact the algorithms are.
pub(super) fn comparisons(compared: &[Algorithms], not_compared: &BTreeSet<String>) -> Markup {
    html! {
        section {
            h2 { "How exact each algorithm is" }
            @for why in not_compared { p.warning { "Not compared: " (why) } }
            @if !compared.is_empty() {
                p.note {
                    "Each algorithm with the same quota and period on the same requests. A decision is judged by what the same \
                     algorithm admitted in the period before: it is wrong if an exact log of that would have decided otherwise. \
                     The overshoot is the most that a key got in any span of one period, as a multiple of the quota. The \
                     difference is how far estimates are from the truth, on average. Fairness is Jain's index: 1 if all keys \
                     get the same part of what the log gives them."
                }
            }
            @for one in compared {
                h3 { code { (one.limit.quota()) " in " (seconds(Some(one.limit.period().as_secs_f64()))) } " by " (one.by) }
                (scrolled("Algorithms", &decisions(&one.comparison)))
            }
        }
    }
}

/// A proposed limit, and what other quotas refuse.
pub(super) fn suggested(suggestion: &Suggestion) -> anyhow::Result<Markup> {
    let share: Share = suggestion.share.parse().map_err(anyhow::Error::msg).context("a share")?;
    let rows = suggestion.tried.iter().map(|one| {
        vec![
            number(one.quota),
            number(one.refused.requests),
            percent(crate::engine::share(one.refused.requests, suggestion.requests)),
            number(one.refused.keys),
            percent(crate::engine::share(one.refused.keys, suggestion.keys)),
        ]
    });
    let header = ["QUOTA", "REFUSED", "SHARE", "REFUSED KEYS", "SHARE OF KEYS"];
    let tried = table(0, &header, rows);
    let title = format!("Refused share of {} for each quota", share.of());
    let caption = format!(
        "{} were tried. The axis of the quotas is logarithmic, and ends at the first one that refuses nothing.",
        count(suggestion.tried.len() as u64, "quota")
    );
    let plot = match suggestion.tried.first() {
        // If no quota was tried, or the smallest one refuses nothing, the plot would be of one point at most.
        None | Some(Tried { refused: Refusals { requests: 0, .. }, .. }) => html! {},
        _ => figure(&title, |width| plots::tried(suggestion, share, width), &caption, &tried)?,
    };
    Ok(html! {
        article {
            h3 { code { (suggestion.limit) } " by " (suggestion.by) }
            p {
                "At most " (suggestion.share) ": " code { (suggestion.limit) } " "
                @for (at, line) in hits(suggestion).iter().enumerate() { @if at > 0 { "; " } (line) } "."
            }
            (plot)
            @if !suggestion.top.is_empty() {
                h4 { "Refused most by " code { (suggestion.limit) } }
                (scrolled("Refused most", &keys_hit(suggestion)))
            }
        }
    })
}
