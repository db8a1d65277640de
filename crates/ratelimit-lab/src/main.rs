//! The command `ratelimit-lab`, which the library implements.

use std::alloc::System;
use std::process::ExitCode;

use cap::Cap;

/// Counts allocated bytes, to measure the memory that a key takes.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> ExitCode {
    ratelimit_lab::run(|| ALLOCATOR.allocated())
}
