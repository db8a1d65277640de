//! Units and states of meters, as they stand in updates and states.
//!
//! An entry begins with a number. 0 makes a limit known, for the rest of the message; the limits of a message have the
//! numbers 1, 2, … in their order. Another number is that of the limit, and the entry is of one meter under it.
//!
//! | what | what follows |
//! |---|---|
//! | limit | name space and scope (text); then 1, units, segment in microseconds, segments carried, 1 if strict or else 0 – or 2, interval in nanoseconds, burst, 1 if a queue or else 0 – or 3, units, window in nanoseconds |
//! | meter | the key (bytes); of a window its offset in microseconds; then units or a state |
//! | units | of a window: the segment's number, the units (signed); of a bucket: what drains in nanoseconds (signed), the TAT; of a log: the newest instant, the units (signed) |
//! | state | of a window: when it was charged last, how many counts, the counts from the newest segment on; of a bucket: when it was charged last, the TAT, its interval; of a log: how many runs, and of each the nanoseconds since the one before and the units |
//!
//! Instants are nanoseconds since the Unix epoch; what is not said to be signed is not. A log that is too long for a
//! message is told coarsely: neighbours become as new as the newer of them, so it is never less than the truth.

mod read;
mod write;

pub(crate) use read::Entries;
pub(crate) use write::Writer;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratelimit_core::{
        Bucket, Log, LogState, MAX_LOG_UNITS, MAX_UNITS, Meter, MeterId, State, Timestamp, Window,
    };

    use super::super::wire::{Malformed, Reader, put_number};
    use super::*;
    use crate::ledger::Units;

    fn id(number: usize, key: &[u8]) -> MeterId<'_> {
        let (namespace, scope) = [("", "fixed:1s"), ("api", "fixed:1s"), ("api", "log")][number % 3];
        MeterId { namespace, scope, key }
    }

    fn any_meter() -> impl Strategy<Value = Meter> {
        let window = (1..=MAX_UNITS, 1..1_000_000_u64, 0..20_u32, any::<bool>(), any::<u64>());
        let window = window.prop_map(|(limit, segment, carried, strict, offset)| {
            let offset = offset % segment * 1_000;
            Meter::Window(Window::new(limit, segment * 1_000, carried, strict, offset).unwrap())
        });
        let bucket = (1..1_u64 << 40, 1..1_u64 << 20, any::<bool>());
        let bucket = bucket.prop_map(|(interval, burst, queue)| {
            Meter::Bucket(Bucket::with_interval(interval, burst, queue).unwrap())
        });
        let log = (1..=MAX_LOG_UNITS, 1..1_u64 << 50)
            .prop_map(|(limit, window)| Meter::Log(Log::new(limit, window).unwrap()));
        prop_oneof![window, bucket, log]
    }

    type Told = (usize, Vec<u8>, Meter, Units, State);

    fn any_told() -> impl Strategy<Value = Told> {
        let units = -1_000_000..1_000_000_i64;
        let charges = prop::collection::vec((1..50_u64, 0..1_u64 << 40), 0..20);
        let all = (0..3_usize, prop::collection::vec(any::<u8>(), 0..20), any_meter(), units, charges);
        all.prop_map(|(number, key, meter, units, charges)| {
            let (mut state, mut now) = (meter.fresh(), Timestamp::from_secs(1_800_000_000));
            for (cost, pause) in charges {
                now = now + std::time::Duration::from_nanos(pause);
                meter.charge(&mut state, cost, now);
            }
            let units = match meter {
                Meter::Window(window) => Units::Window { segment: window.place(now).0, units },
                Meter::Bucket(_) => Units::Bucket { drain: units, floor: now },
                Meter::Log(_) => Units::Log { newest: now, units },
            };
            (number, key, meter, units, state)
        })
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back_in_its_order(
            told in prop::collection::vec(any_told(), 0..30),
            largest in 1_100..3_000_usize,
        ) {
            let mut units = Writer::new(largest, || vec![1, 2, 3]);
            let mut states = Writer::new(largest, Vec::new);
            for (number, key, meter, some, state) in &told {
                units.units(&id(*number, key), meter, some);
                states.state(&id(*number, key), meter, state);
            }
            let ((units, left_out), (states, none)) = (units.finish(), states.finish());
            prop_assert_eq!((left_out, none), (0, 0));
            let mut expected = told.iter();
            for page in &units {
                prop_assert!(page.len() <= largest);
                let mut entries = Entries::new(Reader::new(&page[3..]));
                while let Some((found, meter, units)) = entries.units().unwrap() {
                    let (number, key, same, some, _) = expected.next().unwrap();
                    prop_assert_eq!((found, meter, units), (id(*number, key), *same, *some));
                }
            }
            prop_assert!(expected.next().is_none());
            let mut expected = told.iter();
            for page in &states {
                prop_assert!(page.len() <= largest);
                let mut entries = Entries::new(Reader::new(page));
                while let Some((found, meter, state)) = entries.state().unwrap() {
                    let (number, key, same, _, known) = expected.next().unwrap();
                    prop_assert_eq!((found, meter, &state), (id(*number, key), *same, known));
                }
            }
            prop_assert!(expected.next().is_none());
        }

        #[test]
        fn any_bytes_are_entries_or_refused(kind in 1..4_u8, bytes: Vec<u8>) {
            for front in [&[][..], &[0, 0, 1, b's', kind], &[0, 0, 0, 1, 9, 9, 0, 0, 1, 1, b'k']] {
                let all = [front, &bytes].concat();
                let (mut units, mut states) = (Entries::new(Reader::new(&all)), Entries::new(Reader::new(&all)));
                while let Ok(Some((_, meter, units))) = units.units() {
                    if let (Meter::Window(window), Units::Window { segment, .. }) = (meter, units) {
                        window.place(window.instant(segment, 0)); // overflows nowhere
                    }
                }
                while let Ok(Some((_, meter, state))) = states.state() {
                    prop_assert!(meter.owns(&state));
                }
            }
        }
    }

    #[test]
    fn a_log_that_is_too_long_is_told_coarsely_and_never_as_less() {
        let meter = Meter::Log(Log::new(10_000, 1 << 40).unwrap());
        let units: std::collections::VecDeque<u64> = (0..10_000).map(|unit| unit * 1_000_003).collect();
        let state = State::Log(LogState { units: units.clone() });
        let mut writer = Writer::new(2_000, Vec::new);
        writer.state(&id(0, b"before"), &meter, &meter.fresh());
        writer.state(&id(0, b"k"), &meter, &state);
        let (pages, left_out) = writer.finish();
        assert_eq!((pages.len(), left_out), (2, 0));
        assert!(pages[1].len() <= 2_000 && pages[1].len() > 1_000);
        let Ok(Some((_, _, State::Log(told)))) = Entries::new(Reader::new(&pages[1])).state() else {
            panic!()
        };
        assert_eq!(told.units.len(), units.len());
        assert!(told.units.iter().zip(&units).all(|(told, unit)| told >= unit));
        assert_eq!(told.units.back(), units.back());
    }

    #[test]
    fn a_short_message_cannot_claim_a_long_log() {
        let meter = Meter::Log(Log::new(5, 1).unwrap());
        let mut writer = Writer::new(2_000, Vec::new);
        writer.state(&id(0, b"k"), &meter, &State::Log(LogState { units: [7].into() }));
        let mut page = writer.finish().0.remove(0);
        assert!(Entries::new(Reader::new(&page)).state().is_ok());
        assert_eq!(page.pop(), Some(1));
        put_number(&mut page, MAX_LOG_UNITS + 1);
        assert_eq!(Entries::new(Reader::new(&page)).state(), Err(Malformed));
    }

    #[test]
    fn a_name_that_fits_no_message_is_left_out() {
        let meter = Meter::Log(Log::new(5, 1).unwrap());
        let units = Units::Log { newest: Timestamp::EPOCH, units: 1 };
        let mut writer = Writer::new(2_000, Vec::new);
        for length in [5, 1_990, 5, 3_000, 5] {
            writer.units(&id(0, &vec![0; length]), &meter, &units);
        }
        let (pages, left_out) = writer.finish();
        assert_eq!(left_out, 2);
        let count = |page: &Vec<u8>| {
            let mut entries = Entries::new(Reader::new(page));
            std::iter::from_fn(|| entries.units().unwrap()).count()
        };
        assert_eq!(pages.iter().map(count).sum::<usize>(), 3);
    }
}
