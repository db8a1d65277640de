//! The command `ratelimit-server`. The library of this crate does the work.

use std::process::ExitCode;

fn main() -> ExitCode {
    ratelimit_server::main()
}
