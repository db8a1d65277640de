//! Who is refused, and which requests are replayed.

mod common;

use std::process::Stdio;

use common::lab_with;
use serde_json::json;

fn line(second: u32, ip: &str, path: &str, agent: &str) -> String {
    format!(
        "{ip} - - [05/Jan/2026:10:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"{agent}\"\n"
    )
}

/// One client that tries to log in with two programs, and one that asks for many pages.
fn log() -> String {
    let login = |n: u32| {
        line(
            n,
            "192.0.2.1",
            if n % 4 == 1 { "/" } else { "/login?a" },
            ["curl/8", "x"][usize::from(n % 8 == 7)],
        )
    };
    let pages = |n: u32| line(n, "192.0.2.2", &format!("/page/{n}"), "Mozilla/5.0");
    let one = |_| line(0, "192.0.2.3", "/", "-");
    (0..32).map(login).chain((0..31).map(pages)).chain((0..5).map(one)).collect()
}

#[test]
fn the_path_and_the_agent_of_most_refused_requests_are_beside_each_key() {
    let log = log();
    let arguments = ["replay", "-", "--limit", "2/h log", "--by", "ip"];
    let result = lab_with(&[&arguments[..], &["--json"]].concat(), log.as_bytes()).json();
    let top = &result["columns"][0]["top"];
    // An independent count: the first two requests of each are admitted.
    assert_eq!((&top[0]["key"], &top[0]["refused"]), (&json!("192.0.2.1"), &json!(30)));
    assert_eq!(top[0]["path"], json!({"value": "/login", "refused": 23, "of": 30}));
    assert_eq!(top[0]["agent"], json!({"value": "curl/8", "refused": 26, "of": 30}));
    // None of many different paths is the most frequent one.
    assert_eq!((&top[1]["path"], &top[1]["agent"]["refused"]), (&json!(null), &json!(29)));
    assert_eq!((&top[2]["path"]["refused"], &top[2]["agent"]), (&json!(3), &json!(null)));
    let text = lab_with(&arguments, log.as_bytes()).stdout;
    let table = "\
KEY        MOSTLY REFUSED ON  MOSTLY AS
192.0.2.1  /login (76.67 %)   curl/8 (86.67 %)
192.0.2.2  -                  Mozilla/5.0 (100.00 %)
192.0.2.3  / (100.00 %)       -
";
    assert!(text.contains(table), "{text}");
    let page = |more: &[&str]| {
        let arguments = [&["report", "-", "-o", "-"], &arguments[2..], more].concat();
        lab_with(&arguments, log.as_bytes()).stdout
    };
    assert!(page(&[]).contains("/login (76.67 %)"));
    assert!(!page(&["--hide-keys"]).contains("/login"), "it may tell who that is");
    assert!(!page(&["--top", "0"]).contains("/login"));
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("keys.csv");
    let csv = csv.to_str().unwrap();
    lab_with(&[&arguments[..], &["--csv", csv]].concat(), log.as_bytes());
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(
        csv.lines().next().unwrap().ends_with(",path,agent") && csv.contains(",/login,curl/8\n"),
        "{csv}"
    );
}

#[test]
fn a_part_of_the_log_is_replayed() {
    let log: String = (0..60)
        .map(|n| line(n, "192.0.2.1", ["/", "/health", "/static/a", "/static"][n as usize % 4], "x"))
        .collect();
    let decided = |more: &[&str]| {
        let arguments = ["replay", "-", "--json", "--limit", "1/h", "--by", "ip"];
        let result = lab_with(&[&arguments[..], more].concat(), log.as_bytes()).json();
        (result["columns"][0]["requests"].as_u64().unwrap(), result["left_out"].as_u64().unwrap())
    };
    for (more, expected) in [
        (&[][..], 60),
        (&["--from", "2026-01-05T10:00:10Z"], 50),
        (&["--to", "2026-01-05T10:00:10Z"], 10),
        (&["--from", "2026-01-05T10:00:10Z", "--to", "2026-01-05T11:00:20+01:00"], 10),
        (&["--from", "2026-01-05T11:00:10", "--timezone", "Europe/Berlin"], 50),
        (&["--from", "2026-01-05 10:00:10", "--to", "2026-01-06"], 50),
        (&["--without-path", "/health"], 45),
        (&["--without-path", "/health", "--without-path", "/static/*"], 30),
        (&["--without-path", "/static*", "--to", "2026-01-05T10:00:10Z"], 6),
        (&["--without-path", "/heal"], 60),
    ] {
        assert_eq!(decided(more), (expected, 60 - expected), "{more:?}");
    }
    let run = |more: &[&str]| lab_with(&[&["replay", "-", "--limit", "1/h"], more].concat(), log.as_bytes());
    let text = run(&["--without-path", "/health"]).stdout;
    assert!(text.contains("Left out by --from, --to and --without-path: 15 requests"), "{text}");
    run(&["--from", "noon"]).fails(1, "--from noon: write a time as 2026-01-05");
    let nothing = run(&["--from", "2027-01-05"]);
    assert_eq!(
        (nothing.code, nothing.stderr.contains("no request is left by --from")),
        (1, true),
        "{nothing:?}"
    );
}

#[test]
fn the_share_of_bad_lines_is_in_the_first_line() {
    let log = format!("{}bad\n{}", line(0, "192.0.2.1", "/", "x"), line(1, "192.0.2.1", "/", "x").repeat(2));
    let text = lab_with(&["replay", "-", "--limit", "1/h"], log.as_bytes()).stdout;
    assert_eq!(text.lines().next(), Some("3 requests in 4 lines of standard input, 1 bad line (25.00 %)"));
    let page = lab_with(&["report", "-", "-o", "-", "--limit", "1/h"], log.as_bytes()).stdout;
    assert!(page.contains("1 bad line (25.00 %)"), "{page}");
}

#[test]
fn long_keys_do_not_make_tables_wider_than_the_terminal() {
    let long = format!("/{}", "x".repeat(500));
    let log: String = (0..9).map(|n| line(n, "2001:db8:1111:2222::1", &long, &"agent ".repeat(40))).collect();
    let widest = |columns: &str, arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, &log).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ratelimit-lab"));
        command
            .args(["replay", path.to_str().unwrap(), "--limit", "1/h"])
            .args(arguments)
            .env("COLUMNS", columns);
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = text.lines().skip_while(|line| !line.starts_with("Refused most"));
        (rows.map(|row| row.chars().count()).max().unwrap(), text)
    };
    let (width, text) = widest("100", &["--by", "path"]);
    assert!(width <= 100 && text.contains("xxx…"), "{width} {text}");
    let (width, text) = widest("100", &["--by", "ip"]);
    assert!(width <= 100 && text.contains("2001:db8:1111:2222::/64"), "{width} {text}");
    // What another program reads is whole.
    assert!(widest("", &["--by", "path"]).0 > 256);
}
