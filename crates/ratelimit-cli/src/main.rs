//! The command `ratelimit`: see the library, which does the work.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratelimit_cli::run()
}
