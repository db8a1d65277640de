//! The encoding of units and states of meters in messages.
//!
//! An entry begins with a number. 0 declares a limit for the rest of the message; the limits of a message are numbered 1, 2, …
//! in order. Any other number refers to a limit, and the entry is of one meter under it.
//!
//! | what | what follows |
//! |---|---|
//! | limit | namespace and scope (text); then 1, units, segment in microseconds, segments carried, 1 if strict or else 0 – or 2, interval in nanoseconds, burst, immediate units of a queue or else 0 – or 3, units, window in nanoseconds |
//! | meter | the key (bytes); of a window its offset in microseconds; then units or a state |
//! | units | of a window: the segment's number, the units (signed); of a bucket: what drains in nanoseconds (signed), the TAT; of a log: the newest instant, the units (signed) |
//! | state | of a window: when it was charged last, how many counts, the counts from the newest segment on; of a bucket: how many numbers, and these: when it was charged last, the TAT, its interval – or, where units of several rates are there, when it was charged last, and of each rate by rising interval the TAT, the interval, the receipt of the newest; of a log: how many runs, and of each the nanoseconds since the one before and the units |
//!
//! Instants are nanoseconds since the Unix epoch. Numbers are unsigned unless stated otherwise. A log that is too long for a
//! message is sent with less precision: adjacent units get the instant of the newer one, so it never counts for less.
//! A window that is too long for a message is sent as several states of consecutive segments.
//! All logs in a message have at most as many units as one log may have.

mod read;
mod write;

pub(crate) use read::Entries;
pub(crate) use write::Writer;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratelimit_core::Timestamp;
    use ratelimit_core::meter::{
        Bucket, BucketState, Log, LogState, MAX_LOG_UNITS, MAX_UNITS, Meter, State, Window, WindowState,
    };
    use ratelimit_core::store::{Claim, MeterId, Mode, Refund};

    use super::super::wire::{Malformed, Reader, put_number, put_signed};
    use super::*;
    use crate::ledger::{Ledger, Units};

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
        let bucket = (1..1_u64 << 40, 1..1_u64 << 20, 1..1_u64 << 21);
        let bucket = bucket.prop_map(|(interval, burst, immediate)| {
            Meter::Bucket(Bucket::with_interval(interval, burst).unwrap().with_immediate(immediate))
        });
        let log = (1..=MAX_LOG_UNITS, 1..1_u64 << 50)
            .prop_map(|(limit, window)| Meter::Log(Log::new(limit, window).unwrap()));
        prop_oneof![window, bucket, log]
    }

    /// A meter with the same state, a bucket at another rate.
    fn at_rate(meter: Meter, rate: u64) -> Meter {
        match meter {
            Meter::Bucket(bucket) => {
                Meter::Bucket(Bucket::with_interval(bucket.interval() * rate, 9).unwrap())
            }
            _ => meter,
        }
    }

    type Sample = (usize, Vec<u8>, Meter, Units, State);

    fn any_sample() -> impl Strategy<Value = Sample> {
        let units = -1_000_000..1_000_000_i64;
        let charges = prop::collection::vec((1..50_u64, 0..1_u64 << 40, 1..6_u64), 0..20);
        let all = (0..3_usize, prop::collection::vec(any::<u8>(), 0..20), any_meter(), units, charges);
        all.prop_map(|(number, key, meter, units, charges)| {
            let (mut state, mut now) = (meter.fresh(), Timestamp::from_secs(1_800_000_000));
            for (cost, pause, rate) in charges {
                now = now + std::time::Duration::from_nanos(pause);
                at_rate(meter, rate).charge(&mut state, cost, now);
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
        fn entries_round_trip_in_order(
            samples in prop::collection::vec(any_sample(), 0..30),
            largest in 1_100..3_000_usize,
        ) {
            let mut units = Writer::new(largest, || vec![1, 2, 3]);
            let mut states = Writer::new(largest, Vec::new);
            for (number, key, meter, some, state) in &samples {
                units.units(&id(*number, key), meter, some);
                states.state(&id(*number, key), meter, state);
            }
            let ((units, left_out), (states, none)) = (units.finish(), states.finish());
            prop_assert_eq!((left_out, none), (0, 0));
            let mut expected = samples.iter();
            for page in &units {
                prop_assert!(page.len() <= largest);
                let mut entries = Entries::new(Reader::new(&page[3..]));
                while let Some((found, meter, units)) = entries.units().unwrap() {
                    let (number, key, same, some, _) = expected.next().unwrap();
                    prop_assert_eq!((found, meter, units), (id(*number, key), *same, *some));
                }
            }
            prop_assert!(expected.next().is_none());
            let mut expected = samples.iter();
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

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        /// Whatever a bucket is said to owe: what is read can be decided on, and added to.
        #[test]
        fn any_numbers_are_a_bucket_or_refused(
            mut numbers in prop::collection::vec(prop_oneof![1..20_u64, any::<u64>(), any::<u64>().prop_map(|at| at >> 3)], 0..60),
            is_sorted: bool, count in prop_oneof![9 => Just(None), 1 => any::<u64>().prop_map(Some)],
        ) {
            if let ([_, debts @ ..], true) = (&mut numbers[..], is_sorted) {
                let intervals = 1_000_u64..;
                debts.as_chunks_mut().0.iter_mut().zip(intervals).for_each(|([_, each, _], interval)| *each = interval);
            }
            let meter = Meter::Bucket(Bucket::with_interval(1_000, 5).unwrap());
            let mut page = vec![0, 0, 1, b's', 2, 0xe8, 0x07, 5, 0, 1, 1, b'k'];
            put_number(&mut page, count.unwrap_or(numbers.len() as u64));
            numbers.iter().for_each(|number| put_number(&mut page, *number));
            let mut entries = Entries::new(Reader::new(&page));
            let read = entries.state();
            if let Ok(Some((_, same, State::Bucket(state)))) = &read {
                prop_assert_eq!((*same, BucketState::from_numbers(&numbers)), (meter, Some(state.clone())));
                for now in [Timestamp::EPOCH, Timestamp::from_secs(1_800_000_000), Timestamp::MAX] {
                    let (ledger, other) = (Ledger::new(9, None), id(0, b"k"));
                    prop_assert!(ledger.raise(&other, &at_rate(meter, 3), State::Bucket(state.clone()), now));
                    for (rate, cost) in [(1, 1), (3, MAX_UNITS), (2, 1)] {
                        let meter = at_rate(meter, rate);
                        let decide = |mode| ledger.claim_one_now(now, mode, &Claim { id: other, cost, meter });
                        let (_, verdict) = decide(Mode::Force).unwrap();
                        prop_assert!(decide(Mode::Charge).is_ok());
                        let receipt = verdict.receipt;
                        ledger.refund_now(now, &[Refund { id: other, cost, meter, receipt }]);
                        let units = Units::Bucket { drain: i64::MAX - 1, floor: Timestamp::derived(i64::MAX.cast_unsigned()) };
                        prop_assert_eq!(ledger.merge([(other, meter, units)].into_iter(), now), 0);
                        let units = Units::Bucket { drain: i64::MIN, floor: Timestamp::EPOCH };
                        prop_assert_eq!(ledger.merge([(other, meter, units)].into_iter(), now), 0);
                    }
                    prop_assert!(ledger.raise(&other, &meter, State::Bucket(state.clone()), now));
                }
            } else {
                prop_assert_eq!(&read, &Err(Malformed));
            }
        }
    }

    #[test]
    fn long_logs_are_sent_less_precisely_and_never_count_less() {
        let meter = Meter::Log(Log::new(10_000, 1 << 40).unwrap());
        let units: std::collections::VecDeque<u64> = (0..10_000).map(|unit| unit * 1_000_003).collect();
        let state = State::Log(LogState { units: units.clone() });
        let mut writer = Writer::new(2_000, Vec::new);
        writer.state(&id(0, b"before"), &meter, &meter.fresh());
        writer.state(&id(0, b"k"), &meter, &state);
        let (pages, left_out) = writer.finish();
        assert_eq!((pages.len(), left_out), (2, 0));
        assert!(pages[1].len() <= 2_000 && pages[1].len() > 1_000);
        let Ok(Some((_, _, State::Log(read)))) = Entries::new(Reader::new(&pages[1])).state() else {
            panic!()
        };
        assert_eq!(read.units.len(), units.len());
        assert!(read.units.iter().zip(&units).all(|(read, unit)| read >= unit));
        assert_eq!(read.units.back(), units.back());
    }

    #[test]
    fn long_windows_are_sent_as_several_states() {
        let window = Window::new(MAX_UNITS, 1_000_000_000, 3_600, false, 7_000).unwrap();
        let (meter, now) = (Meter::Window(window), Timestamp::from_nanos(1_800_000_000_123_456_789));
        let counts = (0..=3_600).map(|place| 300 * u64::from(place < 3_600)).collect();
        let state = State::Window(WindowState { at: now, counts });
        let mut writer = Writer::new(5_997, || vec![1, 2, 3]);
        writer.state(&id(0, b"before"), &meter, &meter.fresh());
        writer.state(&id(0, b"k"), &meter, &state);
        let (pages, left_out) = writer.finish();
        assert_eq!((pages.len(), left_out), (3, 0));
        for is_backwards in [false, true] {
            let ledger = Ledger::new(9, None);
            let mut pages: Vec<_> = pages.iter().collect();
            if is_backwards {
                pages.reverse();
            }
            for page in pages {
                assert!(page.len() <= 5_997);
                let mut entries = Entries::new(Reader::new(&page[3..]));
                while let Some((id, meter, state)) = entries.state().unwrap() {
                    assert!(ledger.raise(&id, &meter, state, now));
                }
            }
            let states = (0..).map_while(|shard| ledger.states(shard)).flatten();
            let known: Vec<_> = states.filter(|known| known.name.id().key == b"k").collect();
            assert_eq!(known.iter().map(|known| &known.state).collect::<Vec<_>>(), [&state]);
        }
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
    fn the_units_of_all_logs_in_a_message_are_bounded() {
        let meter = Meter::Log(Log::new(5, 1).unwrap());
        let of = |units| Units::Log { newest: Timestamp::EPOCH, units };
        let page = |all: &[i64]| {
            let mut page = vec![0, 0, 1, b's', 3, 5, 1];
            for units in all {
                page.extend([1, 1, b'k', 0]);
                put_signed(&mut page, *units);
            }
            page
        };
        let read = |page: &[u8]| {
            let mut entries = Entries::new(Reader::new(page));
            let units = std::iter::from_fn(|| entries.units().transpose());
            units.map(|entry| entry.map(|(_, _, units)| units)).collect::<Result<Vec<_>, _>>()
        };
        let most = MAX_LOG_UNITS.cast_signed();
        assert_eq!(read(&page(&[most - 5, 5])).map(|all| all.len()), Ok(2));
        assert_eq!(read(&page(&[most - 5, 6])), Err(Malformed));
        let mut writer = Writer::new(2_000, Vec::new);
        [most - 5, 6, i64::MAX, -7, i64::MIN]
            .iter()
            .for_each(|units| writer.units(&id(0, b"k"), &meter, &of(*units)));
        let (pages, left_out) = writer.finish();
        assert_eq!((pages.len(), left_out), (5, 0));
        let sent: Vec<_> = pages.iter().flat_map(|page| read(page).unwrap()).collect();
        assert_eq!(sent, [most - 5, 6, most, -7, -most].map(of));
    }

    #[test]
    fn names_longer_than_a_message_are_skipped() {
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
