//! Encodes entries.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{MAX_LOG_UNITS, MAX_UNITS, Meter, State, Window};
use ratelimit_core::store::MeterId;

use crate::ledger::Units;
use crate::replicated::wire::{put_bytes, put_number, put_signed};

/// How many of the last limits are searched for an equal one. If none is found, the limit is declared again.
const SEARCHED: usize = 64;

/// Whether a meter is under this limit. The offset of a window does not matter: it may depend on the key.
fn is_under(limit: &Meter, meter: &Meter) -> bool {
    match (limit, meter) {
        (Meter::Window(one), Meter::Window(other)) => {
            let parts =
                |window: &Window| (window.limit(), window.segment(), window.carried(), window.strict());
            parts(one) == parts(other)
        }
        _ => limit == meter,
    }
}

/// Encodes entries into messages of a bounded length.
pub(crate) struct Writer<B> {
    largest: usize,
    begin: B,
    /// The limits declared on the page.
    limits: Vec<(String, String, Meter)>,
    /// The current message. Empty until there is an entry for it.
    page: Vec<u8>,
    /// The length of the page without entries.
    header: usize,
    pages: Vec<Vec<u8>>,
    /// The units of logs on the page.
    log_units: u64,
    too_large: u64,
}

impl<B: FnMut() -> Vec<u8>> Writer<B> {
    /// Each message starts with the bytes of `begin`, and has at most `largest` bytes.
    pub(crate) fn new(largest: usize, begin: B) -> Self {
        let (limits, page, pages) = (Vec::new(), Vec::new(), Vec::new());
        Self { largest, begin, limits, page, header: 0, pages, log_units: 0, too_large: 0 }
    }

    pub(crate) fn units(&mut self, id: &MeterId<'_>, meter: &Meter, units: &Units) {
        let log_units =
            if let Units::Log { units, .. } = units { units.unsigned_abs().min(MAX_LOG_UNITS) } else { 0 };
        let is_put = self.put(id, meter, log_units, |out, _| put_units(out, units));
        self.too_large += u64::from(!is_put);
    }

    pub(crate) fn state(&mut self, id: &MeterId<'_>, meter: &Meter, state: &State) {
        let log_units = if let State::Log(log) = state { log.units.len() as u64 } else { 0 };
        let is_put = match (meter, state) {
            (Meter::Window(window), State::Window(state)) => {
                self.put_window(id, window, state.at, &state.counts)
            }
            _ => self.put(id, meter, log_units, |out, room| put_state(out, state, room)),
        };
        self.too_large += u64::from(!is_put);
    }

    /// A window that is too long for a message is sent as several states, each with some of its counts.
    fn put_window(&mut self, id: &MeterId<'_>, window: &Window, at: Timestamp, counts: &[u64]) -> bool {
        if self.put(id, &Meter::Window(*window), 0, |out, _| put_counts(out, at, counts)) {
            return true;
        }
        let (newer, older) = counts.split_at(counts.len() / 2);
        let newest_of_older = window.place(at).0.saturating_sub(newer.len() as u64);
        !newer.is_empty()
            && self.put_window(id, window, at, newer)
            && self.put_window(id, window, window.instant(newest_of_older, 0), older)
    }

    /// Takes the full messages.
    pub(crate) fn take_full(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.pages)
    }

    /// The messages, and the number of meters that were skipped because their names do not fit a message.
    pub(crate) fn finish(mut self) -> (Vec<Vec<u8>>, u64) {
        if !self.page.is_empty() {
            self.pages.push(self.page);
        }
        (self.pages, self.too_large)
    }

    /// `false` if the entry is too long for a message.
    fn put(
        &mut self,
        id: &MeterId<'_>,
        meter: &Meter,
        log_units: u64,
        content: impl Fn(&mut Vec<u8>, usize),
    ) -> bool {
        for is_last_try in [false, true] {
            if self.page.is_empty() {
                self.page = (self.begin)();
                self.header = self.page.len();
            }
            let (end, limits) = (self.page.len(), self.limits.len());
            self.put_meter(id, meter);
            // The first entry of a page gets all its room.
            let room =
                if end == self.header { self.largest.saturating_sub(self.page.len()) } else { usize::MAX };
            content(&mut self.page, room);
            let fits = self.page.len() <= self.largest && self.log_units + log_units <= MAX_LOG_UNITS;
            if fits || end == self.header && self.page.len() <= self.largest {
                self.log_units += log_units;
                return true;
            }
            self.page.truncate(end);
            self.limits.truncate(limits);
            if is_last_try || end == self.header {
                break;
            }
            self.next_page();
        }
        false
    }

    fn next_page(&mut self) {
        self.pages.push(std::mem::take(&mut self.page));
        self.limits.clear();
        self.log_units = 0;
    }

    fn put_meter(&mut self, id: &MeterId<'_>, meter: &Meter) {
        let is_same = |(namespace, scope, limit): &(String, String, Meter)| {
            namespace == id.namespace && scope == id.scope && is_under(limit, meter)
        };
        let known = self.limits.iter().rev().take(SEARCHED).position(is_same);
        let number = if let Some(back) = known {
            self.limits.len() - back
        } else {
            put_number(&mut self.page, 0);
            put_bytes(&mut self.page, id.namespace.as_bytes());
            put_bytes(&mut self.page, id.scope.as_bytes());
            put_limit(&mut self.page, meter);
            self.limits.push((id.namespace.to_owned(), id.scope.to_owned(), *meter));
            self.limits.len()
        };
        put_number(&mut self.page, number as u64);
        put_bytes(&mut self.page, id.key);
        if let Meter::Window(window) = meter {
            put_number(&mut self.page, window.offset() / 1_000);
        }
    }
}

fn put_limit(out: &mut Vec<u8>, meter: &Meter) {
    match meter {
        Meter::Window(window) => {
            out.push(1);
            put_number(out, window.limit());
            put_number(out, window.segment() / 1_000);
            put_number(out, u64::from(window.carried()));
            out.push(u8::from(window.strict()));
        }
        Meter::Bucket(bucket) => {
            out.push(2);
            put_number(out, bucket.interval());
            put_number(out, bucket.burst());
            put_number(out, if bucket.is_queue() { bucket.immediate() } else { 0 });
        }
        Meter::Log(log) => {
            out.push(3);
            put_number(out, log.limit());
            put_number(out, log.window());
        }
    }
}

/// More units than any meter has are sent as that many: a reader accepts no more.
fn put_units(out: &mut Vec<u8>, units: &Units) {
    let bounded = |units: i64, most: u64| units.clamp(-most.cast_signed(), most.cast_signed());
    match *units {
        Units::Window { segment, units } => {
            put_number(out, segment);
            put_signed(out, bounded(units, MAX_UNITS));
        }
        Units::Bucket { drain, floor } => {
            put_signed(out, drain);
            put_number(out, floor.as_nanos());
        }
        Units::Log { newest, units } => {
            put_number(out, newest.as_nanos());
            put_signed(out, bounded(units, MAX_LOG_UNITS));
        }
    }
}

fn put_state(out: &mut Vec<u8>, state: &State, room: usize) {
    match state {
        State::Window(state) => put_counts(out, state.at, &state.counts),
        State::Bucket(state) => {
            let numbers = state.numbers();
            put_number(out, numbers.len() as u64);
            numbers.into_iter().for_each(|number| put_number(out, number));
        }
        State::Log(state) => {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for unit in &state.units {
                match runs.last_mut() {
                    Some((instant, units)) if instant == unit => *units += 1,
                    _ => runs.push((*unit, 1)),
                }
            }
            let front = out.len();
            loop {
                put_number(out, runs.len() as u64);
                let mut before = 0;
                for (instant, units) in &runs {
                    put_number(out, instant - before);
                    put_number(out, *units);
                    before = *instant;
                }
                if out.len() - front <= room || runs.len() <= 1 {
                    return;
                }
                out.truncate(front);
                runs = runs.chunks(2).map(coarser).collect();
            }
        }
    }
}

fn put_counts(out: &mut Vec<u8>, at: Timestamp, counts: &[u64]) {
    let length = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    put_number(out, at.as_nanos());
    put_number(out, length as u64);
    counts[..length].iter().for_each(|count| put_number(out, *count));
}

/// Combines runs into one at their newest instant.
fn coarser(runs: &[(u64, u64)]) -> (u64, u64) {
    (runs.last().map_or(0, |run| run.0), runs.iter().map(|run| run.1).sum())
}
