//! Inputs made from a corpus by random changes, the same in each run.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngSeed, TestRunner};

/// How many inputs are made.
const INPUTS: u32 = 3_000;

/// Longer inputs test nothing else, and take longer.
const LONGEST: usize = 4_096;

/// What is done to an input.
#[derive(Clone, Debug)]
enum Change {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    /// Eight bytes of a number, in either order.
    Number(Index, u64, bool),
    /// A part of another input of the corpus.
    Splice(Index, Index, Index, usize),
}

/// Runs `target` on inputs made from the corpus in this folder, unless a fuzzer makes them.
///
/// # Panics
/// If `target` panics: the message contains the smallest such input that was found. And if there is no corpus.
#[allow(unexpected_cfgs)] // `fuzzing` is set by fuzzers
pub fn run_changed(corpus: &Path, target: fn(&[u8])) {
    if cfg!(fuzzing) {
        return;
    }
    let inputs = read(corpus);
    assert!(!inputs.is_empty(), "there is no corpus in {}", corpus.display());
    let outcome = runner().run(&changes(), |changes| {
        let bytes = apply(&changes, &inputs);
        let result = std::panic::catch_unwind(|| target(&bytes));
        prop_assert!(result.is_ok(), "the input is {:?}: {}", bytes, bytes.escape_ascii());
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// Inputs that are made from the corpus in this folder, the same ones each time, without an end.
///
/// # Panics
/// If there is no corpus.
pub fn changed(corpus: &Path) -> impl Iterator<Item = Vec<u8>> {
    let (inputs, changes, mut runner) = (read(corpus), changes(), runner());
    assert!(!inputs.is_empty(), "there is no corpus in {}", corpus.display());
    let next = move || changes.new_tree(&mut runner).ok().map(|tree| apply(&tree.current(), &inputs));
    std::iter::from_fn(next)
}

/// An input of the corpus, and what is done to it.
type Changes = (Index, Vec<Change>);

fn changes() -> impl Strategy<Value = Changes> {
    (any::<Index>(), prop::collection::vec(change(), 0..8))
}

fn apply((which, changes): &Changes, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = which.get(corpus).clone();
    changes.iter().for_each(|change| change.apply(&mut bytes, corpus));
    bytes.truncate(LONGEST);
    bytes
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases: INPUTS,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

/// The files of a corpus, in the order of their names.
fn read(corpus: &Path) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(corpus).into_iter().flatten().flatten().map(|file| file.path());
    let mut files: Vec<_> = files.filter(|path| path.is_file()).collect();
    files.sort();
    files.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || {
        prop_oneof![
            any::<u8>(),
            prop::sample::select(b" \r\n\t\0,;:=/\"'%{}[]()-+.0189azAZ\x7f\xff".to_vec())
        ]
    };
    let number = prop_oneof![
        any::<u64>(),
        prop::sample::select(vec![
            0,
            1,
            u64::MAX,
            i64::MAX as u64,
            1 << 63,
            (1 << 62) - 1,
            1 << 62,
            999_999_999_999_999
        ]),
    ];
    prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        (any::<Index>(), 1..12_usize).prop_map(|(at, size)| Change::Remove(at, size)),
        (any::<Index>(), 1..12_usize, 1..40_usize)
            .prop_map(|(at, size, times)| Change::Repeat(at, size, times)),
        (any::<Index>(), number, any::<bool>())
            .prop_map(|(at, number, turned)| Change::Number(at, number, turned)),
        (any::<Index>(), any::<Index>(), any::<Index>(), 1..30_usize)
            .prop_map(|(at, which, from, size)| Change::Splice(at, which, from, size)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let place = |at: &Index| at.index(bytes.len() + 1);
        let end = |at: usize, size: usize, length: usize| (at + size).min(length);
        match self {
            Self::Replace(at, byte) => {
                let at = place(at);
                bytes.splice(at..end(at, 1, bytes.len()), [*byte]);
            }
            Self::Insert(at, byte) => bytes.insert(place(at), *byte),
            Self::Remove(at, size) => {
                let at = place(at);
                bytes.drain(at..end(at, *size, bytes.len()));
            }
            Self::Repeat(at, size, times) => {
                let at = place(at);
                let part = bytes[at..end(at, *size, bytes.len())].repeat(*times);
                bytes.splice(at..at, part);
            }
            Self::Number(at, number, turned) => {
                let at = place(at);
                let number = if *turned { number.to_le_bytes() } else { number.to_be_bytes() };
                bytes.splice(at..end(at, 8, bytes.len()), number);
            }
            Self::Splice(at, which, from, size) => {
                let (at, other) = (place(at), which.get(corpus));
                let from = from.index(other.len() + 1);
                bytes.splice(at..at, other[from..end(from, *size, other.len())].iter().copied());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// Fails if a digit is followed by a colon: that takes a splice or two.
    fn finds(bytes: &[u8]) {
        assert!(!bytes.windows(2).any(|pair| pair[0].is_ascii_digit() && pair[1] == b':'));
    }

    #[test]
    fn a_failure_is_found_and_made_small_the_same_one_each_time() {
        let folder = std::env::temp_dir().join(format!("ratelimit-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a"), "number 5").unwrap();
        std::fs::write(folder.join("b"), "a: b").unwrap();
        let message = || {
            let panic = catch_unwind(|| run_changed(&folder, finds)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        let (first, second) = (message(), message());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(first, second);
        assert!(first.contains(':'), "{first}");
    }

    #[test]
    fn a_target_without_a_corpus_fails() {
        assert!(catch_unwind(|| run_changed("/nowhere".as_ref(), |_| {})).is_err());
    }
}
