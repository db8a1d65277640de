//! redis-cli, as people type commands.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::server;
use crate::surroundings::{RateLimitServer, testbed};

struct Cli<'a> {
    program: PathBuf,
    server: &'a RateLimitServer,
}

impl<'a> Cli<'a> {
    async fn of(server: &'a RateLimitServer) -> Self {
        let program = testbed().client("redis-cli", "redis-tools").await;
        Self { program: program.unwrap_or_else(|error| panic!("{error}")), server }
    }

    /// The lines that it prints.
    fn run(&self, command: &str) -> Vec<String> {
        let mut cli = Command::new(&self.program);
        cli.args(["-h", "127.0.0.1", "-p", &self.server.redis().port().to_string()]);
        let output = cli.args(command.split(' ')).stdin(Stdio::null()).output().expect("redis-cli");
        let printed = String::from_utf8(output.stdout).expect("text");
        printed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The numbers that it prints.
    fn numbers(&self, command: &str) -> Vec<i64> {
        let lines = self.run(command);
        lines.iter().map(|line| line.parse().unwrap_or_else(|_| panic!("{command}: {lines:?}"))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn throttle_admits_the_burst_and_one_and_says_when_to_come_back() {
    let server = server().await;
    let cli = Cli::of(&server).await;
    assert_eq!(cli.run("PING"), ["PONG"]);
    for left in [2, 1, 0] {
        let answer = cli.numbers("CL.THROTTLE user:7 2 3 86400");
        assert_eq!(answer[..4], [0, 3, left, -1], "admitted: {answer:?}");
        // A unit returns each 28,800 seconds.
        let reset = (3 - left) * 28_800;
        assert!((reset - 600..=reset).contains(&answer[4]), "{answer:?}");
    }
    let answer = cli.numbers("CL.THROTTLE user:7 2 3 86400");
    assert_eq!(answer[..3], [1, 3, 0], "refused: {answer:?}");
    assert!((28_200..=28_800).contains(&answer[3]) && (85_800..=86_400).contains(&answer[4]), "{answer:?}");
    assert_eq!(cli.numbers("CL.THROTTLE user:8 2 3 86400 3")[..3], [0, 3, 0], "another key, three at once");
    assert_eq!(cli.numbers("CL.THROTTLE user:8 2 3 86400 1")[..3], [1, 3, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_the_file_are_checked_by_their_names() {
    let server = server().await;
    let cli = Cli::of(&server).await;
    for left in [4, 3, 2, 1, 0] {
        assert_eq!(cli.numbers("RL.CHECK requests alice")[..3], [0, 5, left]);
    }
    assert_eq!(cli.numbers("RL.CHECK requests alice")[..3], [1, 5, 0]);
    assert_eq!(cli.numbers("RL.CHECK requests bob 5")[..3], [0, 5, 0], "a cost of five");
    for (command, told) in [
        ("RL.CHECK no-such-policy alice", "no-such-policy"),
        ("RL.CHECK requests", "RL.CHECK"),
        ("CL.THROTTLE user:7 2 x 60", "count"),
        ("GET alice", "unknown command"),
    ] {
        let said = cli.run(command).join(" ");
        assert!(
            said.contains("ERR") && said.to_lowercase().contains(&told.to_lowercase()),
            "{command}: {said}"
        );
    }
}
