//! Fuzz targets that are ordinary tests.
//!
//! [`fuzz!`] runs a function on bytes. `cargo test` runs it on the corpus, and on inputs that are made from the corpus by
//! random changes from a fixed seed: always the same ones, in a few seconds. `cargo xtask fuzz` runs the same function for as
//! long as you like, guided by coverage, with the stable toolchain and libFuzzer, for which it needs a C++ compiler:
//!
//! ```sh
//! cargo xtask fuzz ratelimit-core limits --seconds 600
//! ```
//!
//! The corpus of a target is the folder `__fuzz__/NAME/corpus` beside the file `fuzz.rs` with the target. An input that fails
//! is stored in `crashes` beside it, and `cargo test` runs it from then on.
#![forbid(unsafe_code)]

mod answers;
mod changes;
mod input;
mod meters;

pub use answers::{any_slices, check_answer, check_answers, check_error};
pub use bolero;
pub use changes::{changed, run_changed};
pub use input::Input;
pub use meters::{any_meter, check_verdict};

/// Runs a function on the corpus `__fuzz__/NAME/corpus` of a folder of the crate, and on changes to it.
///
/// ```no_run
/// ratelimit_fuzz::fuzz!("tests", "numbers", |bytes| {
///     if let Ok(number) = String::from_utf8_lossy(bytes).parse::<u64>() {
///         assert_eq!(number.to_string().parse(), Ok(number));
///     }
/// });
/// ```
#[macro_export]
macro_rules! fuzz {
    ($folder:literal, $name:literal, $target:expr) => {{
        let target: fn(&[u8]) = $target;
        $crate::bolero::check!(name = $name).with_iterations(0).for_each(target);
        $crate::run_changed(
            concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/__fuzz__/", $name, "/corpus").as_ref(),
            target,
        );
    }};
}
