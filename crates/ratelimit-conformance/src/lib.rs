//! The suite that proves a rate limit store.
#![forbid(unsafe_code)]

mod subject;

pub use subject::{BoxError, Server, Space, Subject};

use std::process::ExitCode;

/// Runs the suite on these subjects as the command line says; the `main` of a test without harness.
pub fn main(subjects: Vec<Box<dyn Subject>>) -> ExitCode {
    drop(subjects);
    ExitCode::FAILURE
}
