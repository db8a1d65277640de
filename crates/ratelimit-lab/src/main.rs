//! The command `ratelimit-lab`: see the library, which does the work.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratelimit_lab::run()
}
