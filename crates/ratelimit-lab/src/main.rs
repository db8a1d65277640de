//! The command `ratelimit-lab`: see the library, which does the work.

use std::alloc::System;
use std::process::ExitCode;

use cap::Cap;

/// Counts what is allocated, for the memory that a key takes.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> ExitCode {
    ratelimit_lab::run(|| ALLOCATOR.allocated())
}
