//! The program as its users see it.

use std::process::Command;

fn run(limit: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_outgoing"))
        .args(["--calls", "15", "--limit", limit])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn queued_calls_are_not_refused() {
    let said = run("8/s queue");
    assert_eq!(said.matches(": 200 OK").count(), 15, "{said}");
    assert!(said.ends_with("15 calls, 0 refused\n"), "{said}");
}

#[test]
fn refused_calls_succeed_after_retry_after() {
    // More than the API allows: the eleventh immediate call is refused.
    let said = run("1000/s burst 15");
    assert_eq!(said.matches(": 200 OK").count(), 15, "{said}");
    assert!(said.ends_with("15 calls, 1 refused\n"), "{said}");
}
