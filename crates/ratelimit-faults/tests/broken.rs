//! The checks find stores that are broken on purpose, under load and with real servers.

use std::process::Command;

/// Runs this target with the store broken like this; returns what it printed.
fn run(target: &str, seed: u64, broken: Option<&str>) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-faults"));
    command.args([target, "--seconds", "0", "--seed", &seed.to_string()]);
    if let Some(broken) = broken {
        command.args(["--broken", broken]);
    }
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text + &String::from_utf8_lossy(&output.stderr))
}

fn is_found(target: &str, seed: u64, broken: &str, violation: &str) {
    let (passed, text) = run(target, seed, Some(broken));
    let found = text.lines().any(|line| line.starts_with("- ") && line.contains(violation));
    assert!(!passed && found, "{text}");
}

#[test]
fn a_store_that_is_not_broken_passes() {
    let (passed, text) = run("memory", 1, None);
    assert!(passed && text.contains(" 0 violations"), "{text}");
}

#[test]
fn a_store_that_forgets_is_found() {
    is_found("memory", 1, "forgets", "admitted units are not counted");
    is_found("redis", 1, "forgets", "units were admitted beyond the guarantee");
}

#[test]
fn a_store_that_charges_twice_is_found() {
    is_found("memory", 1, "repeats", "units are counted that nobody charged");
    is_found("redis", 1, "repeats", "were refused although they fitted");
}

#[test]
fn a_store_that_admits_what_its_server_does_not_answer_is_found() {
    // The server that keeps its counts is killed, or asked to end.
    is_found("redis-aof", 1, "generous", "admitted units are not counted");
}

#[test]
fn a_store_that_leaks_tasks_is_found() {
    is_found("memory", 1, "leaks", "tasks more than at first");
}

#[test]
fn a_store_that_answers_late_is_found() {
    is_found("memory", 1, "dawdles", "calls were late");
}

#[test]
fn a_store_that_refuses_everything_is_found() {
    is_found("memory", 1, "refuses", "were refused although they fitted");
    // Its claims may be refused while others are in progress, but not all of them.
    is_found("memcached", 1, "refuses", "were refused although they fitted");
}

#[test]
fn a_store_that_refuses_all_calls_of_two_keys_is_found() {
    is_found("memory", 1, "single", "were refused although they fitted");
}

#[test]
fn a_store_that_never_answers_is_found() {
    is_found("memory", 1, "hangs", "calls were late");
}

#[test]
fn a_store_that_blocks_its_thread_is_found() {
    is_found("memory", 1, "blocks", "calls were late");
}

#[test]
fn a_store_that_fails_although_nothing_is_wrong_is_found() {
    is_found("memory", 1, "fails", "calls failed although the servers were well");
}

#[test]
fn a_store_that_charges_a_part_of_what_it_refuses_is_found() {
    is_found("memory", 1, "halves", "units are counted that nobody charged");
}
