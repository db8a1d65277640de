//! The results of a replay as one page of HTML, which loads nothing.

mod parts;
mod plots;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::engine::{Outcome, share};
use crate::results::{Algorithms, Results, keys, policies, summary, who};
use crate::suggest::Suggestion;
use crate::table::{count, date, number, percent, seconds};
use parts::{comparisons, rate, scrolled, suggested};

const STYLE: &str = include_str!("style.css");
/// Forbids the page to load or run anything, whatever a log contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The content of the page.
pub(crate) struct Page {
    /// The command line that has written the page.
    pub(crate) command: String,
    /// The configuration file whose policies are a column, if there is one.
    pub(crate) policies: Option<String>,
    pub(crate) results: Results,
    /// The comparisons of the algorithms, and why other limits are not compared; `None` without `--compare`.
    pub(crate) compared: Option<(Vec<Algorithms>, BTreeSet<String>)>,
}

impl Page {
    pub(crate) fn html(&self) -> anyhow::Result<String> {
        let Results { from, replayed, suggestions, .. } = &self.results;
        let columns = replayed.columns.iter().map(|column| self.column(column));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let proposals = suggestions.iter().map(suggested).collect::<Result<Vec<_>, _>>()?;
        let answers = self.answers();
        let is_long = answers.len() > 2;
        let mut answers = answers.into_iter();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { "Rate limits on " (from) }
                    style { (PreEscaped(STYLE)) (PreEscaped(ratelimit_plot::dark_style())) }
                }
                body {
                    header.long[is_long] {
                        h1 { (answers.next().unwrap_or_default()) }
                        @for answer in answers { p.answer { (answer) } }
                    }
                    main {
                        section { h2 { "What was replayed" } (self.input()) }
                        @if !columns.is_empty() {
                            section {
                                h2 { "What each limit does" }
                                (scrolled("All limits", &summary(&replayed.columns)))
                                p.note { (WAIT) }
                                @for column in columns { (column) }
                            }
                        }
                        @if let Some((compared, others)) = &self.compared { (comparisons(compared, others)) }
                        @if !proposals.is_empty() {
                            section { h2 { "What to set" } @for proposal in proposals { (proposal) } }
                        }
                    }
                    footer {
                        p {
                            "The replay sends what the log has. A refused client may come back later, more often, or never: the log \
                             does not tell. Times are in UTC."
                        }
                    }
                }
            }
        };
        Ok(page.into_string())
    }

    /// What was refused, in a sentence for each column, or for each proposal if there are no columns.
    fn answers(&self) -> Vec<Markup> {
        let Results { replayed, suggestions, .. } = &self.results;
        if replayed.first.is_none() {
            let bad = self.results.lines.bad;
            return vec![html! {
                "There are no requests in the log, so nothing was decided"
                @if bad > 0 { ": " (count(bad, "line")) " could not be read" }
                "."
            }];
        }
        if !replayed.columns.is_empty() {
            let answer = |one: &Outcome| html! { (self.name(one)) " would have refused " (refused(one)) };
            return replayed.columns.iter().map(answer).collect();
        }
        let proposal = |one: &Suggestion| {
            let Suggestion { limit, by, requests, keys, .. } = one;
            let parts = parts_of(by, one.refused.requests, *requests, one.refused.keys, *keys);
            html! { code { (limit) } " by " (by) " would refuse " (parts) }
        };
        match suggestions.is_empty() {
            true if !replayed.skipped.is_empty() => vec![html! { "No limit could be replayed." }],
            true => vec![html! { "No limit could be proposed." }],
            false => suggestions.iter().map(proposal).collect(),
        }
    }

    /// The name of a column in sentences.
    fn name(&self, column: &Outcome) -> Markup {
        let is_file = self.policies.as_deref() == Some(&column.limits);
        html! {
            @if is_file { "The policies of " }
            code { (column.limits) }
            @if !is_file { " by " (column.by) }
        }
    }

    /// The log that was replayed, and warnings about it.
    fn input(&self) -> Markup {
        let Results { from, lines, replayed, .. } = &self.results;
        html! {
            dl {
                dt { "Log" } dd { (from) }
                dt { "Requests" }
                dd { (number(lines.requests)) " in " (count(lines.lines, "line")) ", " (count(lines.bad, "bad line")) " (" (percent(share(lines.bad, lines.lines))) ")" }
                @if let (Some(first), Some(last)) = (replayed.first, replayed.last) {
                    dt { "Time" }
                    dd { (date(first)) " to " (date(last)) ", " (seconds(Some(share(last - first, 1_000_000_000)))) }
                }
                dt { "Command" } dd { code { (self.command) } }
            }
            @for note in self.results.notes() { p.warning { (note) } }
        }
    }

    fn column(&self, column: &Outcome) -> anyhow::Result<Markup> {
        let rate = match column.series.buckets.is_empty() {
            true => html! {},
            false => rate(&column.series)?,
        };
        Ok(html! {
            article {
                h3 { (self.name(column)) }
                p { "Refused: " (refused(column)) }
                @for remark in self.results.remarks(column) { p.note { (remark) } }
                (rate)
                @if !column.policies.is_empty() {
                    h4 { "Policies" }
                    (scrolled("Policies", &policies(column)))
                }
                @if !column.top.is_empty() {
                    h4 { "Refused most" }
                    (scrolled("Refused most", &keys(&column.top, column.peak_seconds)))
                    @if let Some(who) = who(&column.top) {
                        h4 { "What they were refused" }
                        (scrolled("What they were refused", &who))
                    }
                }
            }
        })
    }
}

const WAIT: &str = "A wait is how long until a refused request would have fitted. The median is at most 12.5 % too long. The peak is \
                    the most requests in one period; periods begin at whole multiples of their length.";

/// The refused part of the requests of a column, and of its keys.
fn refused(column: &Outcome) -> Markup {
    parts_of(&column.by, column.refused, column.requests, column.keys_refused, column.keys)
}

/// The refused part of the requests, and of the keys.
fn parts_of(by: &str, refused: u64, requests: u64, keys_refused: u64, keys: u64) -> Markup {
    html! {
        strong { (number(refused)) " of " (count(requests, "request")) }
        " (" span.whole { (percent(share(refused, requests))) } "), "
        (number(keys_refused)) " of " (count(keys, client(by))) "."
    }
}

/// A word for a key.
fn client(by: &str) -> &'static str {
    match by {
        "ip" | "user" => "client",
        "path" => "path",
        _ => "key",
    }
}
