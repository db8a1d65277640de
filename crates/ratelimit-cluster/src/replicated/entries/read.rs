//! Decodes entries. Every value is validated.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{
    Bucket, BucketState, Log, LogState, MAX_LOG_UNITS, MAX_UNITS, Meter, State, Window, WindowState,
};
use ratelimit_core::store::MeterId;
use smallvec::SmallVec;

use crate::ledger::Units;
use crate::replicated::wire::{Malformed, Reader};

/// Decodes entries, one after another.
pub(crate) struct Entries<'a> {
    reader: Reader<'a>,
    limits: Vec<(&'a str, &'a str, Meter)>,
    log_units: u64,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(reader: Reader<'a>) -> Self {
        Self { reader, limits: Vec::new(), log_units: 0 }
    }

    /// The next meter and its units; `None` at the end.
    pub(crate) fn units(&mut self) -> Result<Option<(MeterId<'a>, Meter, Units)>, Malformed> {
        let Some((id, meter)) = self.meter()? else { return Ok(None) };
        let reader = &mut self.reader;
        let units = match meter {
            Meter::Window(window) => {
                let segment = reader.number()?;
                if segment > window.place(Timestamp::MAX).0 {
                    return Err(Malformed);
                }
                Units::Window { segment, units: units(reader)? }
            }
            Meter::Bucket(_) => Units::Bucket { drain: reader.signed()?, floor: derived(reader)? },
            Meter::Log(_) => {
                let (newest, units) = (instant(reader)?, units(reader)?);
                self.count_log_units(units.unsigned_abs())?;
                Units::Log { newest, units }
            }
        };
        Ok(Some((id, meter, units)))
    }

    /// The next meter and its state; `None` at the end.
    pub(crate) fn state(&mut self) -> Result<Option<(MeterId<'a>, Meter, State)>, Malformed> {
        let Some((id, meter)) = self.meter()? else { return Ok(None) };
        let state = match meter {
            Meter::Window(_) => self.window_state(&meter)?,
            Meter::Bucket(_) => self.bucket_state()?,
            Meter::Log(_) => self.log_state()?,
        };
        Ok(Some((id, meter, state)))
    }

    fn meter(&mut self) -> Result<Option<(MeterId<'a>, Meter)>, Malformed> {
        loop {
            if self.reader.is_empty() {
                return Ok(None);
            }
            let number = self.reader.number()?;
            let Some(place) = number.checked_sub(1) else {
                let limit = (self.reader.text()?, self.reader.text()?, limit(&mut self.reader)?);
                self.limits.push(limit);
                continue;
            };
            let place = usize::try_from(place).map_err(|_| Malformed)?;
            let key = self.reader.bytes()?;
            let (namespace, scope, limit) = self.limits.get_mut(place).ok_or(Malformed)?;
            if let Meter::Window(window) = limit {
                let offset = self.reader.number()?.checked_mul(1_000).ok_or(Malformed)?;
                if offset != window.offset() {
                    let (units, segment) = (window.limit(), window.segment());
                    let made = Window::new(units, segment, window.carried(), window.strict(), offset);
                    *window = made.map_err(|_| Malformed)?;
                }
            }
            return Ok(Some((MeterId { namespace, scope, key }, *limit)));
        }
    }

    fn window_state(&mut self, meter: &Meter) -> Result<State, Malformed> {
        let at = instant(&mut self.reader)?;
        let counts = usize::try_from(self.reader.number()?).map_err(|_| Malformed)?;
        let State::Window(WindowState { counts: mut all, .. }) = meter.fresh() else { return Err(Malformed) };
        for count in all.get_mut(..counts).ok_or(Malformed)? {
            *count = self.reader.number()?;
            if *count > MAX_UNITS {
                return Err(Malformed);
            }
        }
        Ok(State::Window(WindowState { at, counts: all }))
    }

    fn bucket_state(&mut self) -> Result<State, Malformed> {
        let mut numbers: SmallVec<[u64; 4]> = SmallVec::new();
        for _ in 0..self.reader.number()? {
            numbers.push(self.reader.number()?);
        }
        BucketState::from_numbers(&numbers).map(State::Bucket).ok_or(Malformed)
    }

    fn log_state(&mut self) -> Result<State, Malformed> {
        let runs = self.reader.number()?;
        let mut state = LogState::default();
        let mut last = 0_u64;
        for _ in 0..runs {
            last = last.checked_add(self.reader.number()?).ok_or(Malformed)?;
            let units = self.reader.number()?;
            self.count_log_units(units)?;
            if last > Timestamp::MAX.as_nanos() {
                return Err(Malformed);
            }
            state.units.extend((0..units).map(|_| last));
        }
        Ok(State::Log(state))
    }

    /// The bound of one log is also the bound of all logs in a message: each unit takes memory.
    fn count_log_units(&mut self, units: u64) -> Result<(), Malformed> {
        self.log_units = self.log_units.checked_add(units).ok_or(Malformed)?;
        if self.log_units > MAX_LOG_UNITS { Err(Malformed) } else { Ok(()) }
    }
}

fn limit(reader: &mut Reader<'_>) -> Result<Meter, Malformed> {
    let meter = match reader.byte()? {
        1 => {
            let limit = reader.number()?;
            let segment = reader.number()?.checked_mul(1_000).ok_or(Malformed)?;
            let carried = u32::try_from(reader.number()?).map_err(|_| Malformed)?;
            Window::new(limit, segment, carried, reader.flag()?, 0).map(Meter::Window)
        }
        2 => {
            let (interval, burst) = (reader.number()?, reader.number()?);
            let immediate = Some(reader.number()?).filter(|units| *units > 0).unwrap_or(u64::MAX);
            Bucket::with_interval(interval, burst).map(|it| Meter::Bucket(it.with_immediate(immediate)))
        }
        3 => Log::new(reader.number()?, reader.number()?).map(Meter::Log),
        _ => return Err(Malformed),
    };
    meter.map_err(|_| Malformed)
}

fn units(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    let units = reader.signed()?;
    if units.unsigned_abs() > MAX_UNITS { Err(Malformed) } else { Ok(units) }
}

fn instant(reader: &mut Reader<'_>) -> Result<Timestamp, Malformed> {
    let nanos = reader.number()?;
    if nanos > Timestamp::MAX.as_nanos() { Err(Malformed) } else { Ok(Timestamp::from_nanos(nanos)) }
}

/// An instant that may be later than any clock, by as much as a bucket can owe.
fn derived(reader: &mut Reader<'_>) -> Result<Timestamp, Malformed> {
    let nanos = reader.number()?;
    if nanos > i64::MAX.cast_unsigned() { Err(Malformed) } else { Ok(Timestamp::derived(nanos)) }
}
