//! The suite on its own reference store, as a user would run it.

use std::process::ExitCode;

use ratelimit_conformance::broken_stores::Model;

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![Box::new(Model)])
}
