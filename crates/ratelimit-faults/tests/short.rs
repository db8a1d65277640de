//! A short run on real servers: no fault makes a store admit more than its guarantee, hang, or leak.

use std::process::Command;

/// Without Sentinel, whose failovers take a quarter of a minute each.
const TARGETS: [&str; 9] = [
    "memory",
    "redis",
    "redis-aof",
    "redis-fallback",
    "redis-cluster",
    "postgres",
    "postgres-logged",
    "memcached",
    "memcached-pair",
];

#[test]
fn every_store_keeps_its_guarantees() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-faults"));
    let output = command.args(TARGETS).args(["--seconds", "60", "--seed", "3"]).output();
    let output = output.expect("the program starts");
    let [text, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{text}\n{errors}");
}
