//! Mistakes and failures: what is said, and the exit code.

mod common;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::Cli;
use ratelimit_testbed::{Settings, Testbed, Way};

fn with_limits(limits: &str) -> Cli {
    Cli::new(&["--store", "redis://127.0.0.1:1/", "--limits", limits])
}

#[test]
fn wrong_limits_are_found_before_the_store_is_asked() {
    with_limits("10/fortnight").run(&["peek", "k"]).fails(
        1,
        &[
            "error: --limits: cannot read the limit \"10/fortnight\": expected a unit of time",
            "at character 4",
        ],
    );
    with_limits("10/s; 20/s").run(&["list"]).fails(1, &["give them different names"]);
}

#[test]
fn wrong_addresses_are_explained_without_their_password() {
    for (url, said) in [
        ("redis://u:s3cret@[::1/", "redis is misconfigured"),
        ("redis://u:s3cret@host/?timout=1s", "there is no option `timout`"),
        ("postgres://u:s3cret@host/db?sslmode=s3cret", "postgres is misconfigured"),
        (
            "http://u:s3cret@host/",
            "begins with redis://, redis+cluster://, redis+sentinel://, postgres:// or memcached://",
        ),
        ("u:s3cret@host", "begins with redis://"),
        ("memory:", "no other process can see them"),
        ("memory:?max_keys=1", "give the address of a store that the program shares"),
    ] {
        let ran = Cli::on(url, "", "1/s").run(&["peek", "k"]);
        ran.fails(1, &["error: ", said]);
        assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    }
}

#[test]
fn every_address_of_redis_is_accepted() {
    for scheme in ["redis+unix", "valkey+unix", "unix"] {
        let ran = Cli::on(&format!("{scheme}:///nowhere/redis.sock"), "", "1/s").run(&["peek", "k"]);
        ran.fails(1, &["error: redis at /nowhere/redis.sock is unreachable"]);
    }
    for scheme in ["redis", "rediss", "valkey", "valkeys"] {
        let ran = Cli::on(&format!("{scheme}://127.0.0.1:1/"), "", "1/s").run(&["peek", "k"]);
        ran.fails(1, &["error: redis at 127.0.0.1:1 is unreachable"]);
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // measures how long the program takes
fn a_server_that_does_not_answer_takes_no_longer_than_the_timeout() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let closed = ratelimit_testbed::Port::reserve().unwrap().number();
    for url in [
        format!("redis://u:s3cret@{silent}/?timeout=300ms"),
        format!("redis://u:s3cret@127.0.0.1:{closed}/?timeout=300ms"),
        format!("postgres://u:s3cret@{silent}/db?timeout=300ms"),
        format!("postgres://u:s3cret@127.0.0.1:{closed}/db?timeout=300ms"),
        format!("memcached://{silent}/?timeout=300ms"),
        format!("memcached://127.0.0.1:{closed}/?timeout=300ms"),
    ] {
        let begun = Instant::now();
        for arguments in [&["peek", "k3y"][..], &["watch", "k3y"]] {
            let ran = Cli::on(&url, "", "1/s").run(arguments);
            ran.fails(1, &["error: "]);
            assert!(ran.stderr.contains("127.0.0.1:") && ran.stderr.lines().count() == 1, "{ran:?}");
            assert!(ran.stderr.matches("refused").count() <= 1, "it says it once: {ran:?}");
            assert!(!ran.stderr.contains("s3cret") && !ran.stderr.contains("k3y"), "{ran:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{url}: {:?}", begun.elapsed());
    }
}

#[test]
fn wrong_usage_is_code_2() {
    let cli = with_limits("1/s");
    cli.run(&["charge", "k", "-5"]).fails(2, &["a charge is at least 1 unit", "a refund needs the decision"]);
    cli.run(&["charge", "k", "0"]).fails(2, &["at least 1"]);
    cli.run(&["charge", "k"]).fails(2, &["<UNITS>"]);
    cli.run(&["peek"]).fails(2, &["<KEY>"]);
    cli.run(&["watch", "k", "--interval", "0"]).fails(2, &["from 0.1"]);
    cli.run(&["list", "--scan", "0"]).fails(2, &["at least 1"]);
    Cli::new(&["--store", "redis://h"]).run(&["peek", "k"]).fails(2, &["--limits <TEXT>|--config <FILE>"]);
    Cli::new(&["--limits", "1/s"]).run(&["peek", "k"]).fails(2, &["--store <URL>"]);
    let both = ["--config", "f.toml", "peek", "k"];
    cli.run(&both).fails(2, &["cannot be used with"]);
    cli.run(&["--escaped", "peek", "a\\"]).fails(1, &["a KEY is not valid with --escaped"]);
    let help = cli.run(&["help", "charge"]);
    assert!(help.code == 0 && help.stdout.contains("There is no refund"), "{help:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_a_reset_needs_yes() {
    let server = Testbed::from_env().redis().await.unwrap();
    let cli = Cli::on(&server.patient_url(), &common::namespace("usage"), "10/h");
    assert_eq!(cli.run(&["charge", "k", "3"]).code, 0);
    cli.run(&["reset", "k"]).fails(2, &["the standard input is not a terminal: add --yes"]);
    assert_eq!(cli.run(&["peek", "k", "--json"]).only_json()["limits"][0]["used"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_may_be_in_the_environment_and_help_does_not_show_it() {
    let server = Testbed::from_env().redis().await.unwrap();
    let cli = Cli::new(&["--limits", "10/h", "--namespace", &common::namespace("env")]);
    let output = cli.command(&["peek", "k"]).env("RATELIMIT_STORE", server.patient_url()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let help = cli.command(&["--help"]).env("RATELIMIT_STORE", "redis://:s3cret@h").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("RATELIMIT_STORE") && !help.contains("s3cret"), "{help}");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_bytes_can_be_a_key() {
    let server = Testbed::from_env().redis().await.unwrap();
    let cli = Cli::on(&server.patient_url(), &common::namespace("bytes"), "10/h");
    assert_eq!(cli.run(&["--escaped", "charge", "\\xff\\\\\\x1b", "3"]).code, 0);
    let peeked = cli.run(&["--escaped", "peek", "\\xff\\\\\\x1b", "--json"]).only_json();
    assert_eq!((&peeked["key"], &peeked["limits"][0]["used"]), (&"\\xff\\\\\\x1b".into(), &3.into()));
    let literal = cli.run(&["peek", "\\xff\\\\\\x1b", "--json"]).only_json();
    assert_eq!(
        (&literal["key"], &literal["limits"][0]["used"]),
        (&"\\\\xff\\\\\\\\\\\\x1b".into(), &0.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_when_the_server_is_back() {
    let settings =
        Settings { addresses: Default::default(), only: Some(Way::Process), ..Settings::from_env() };
    let server = Testbed::new(settings).redis().await.unwrap();
    let cli = Cli::on(&server.patient_url(), "", "10/h");
    let mut watch = cli.start(&["watch", "k", "--interval", "0.1", "--json"]);
    assert!(watch.line().contains("\"remaining\":10"));
    server.kill().await.unwrap();
    cli.run(&["peek", "k"]).fails(1, &["is unreachable"]);
    server.start().await.unwrap();
    assert_eq!(cli.run(&["charge", "k", "3"]).code, 0);
    assert!((0..300).any(|_| watch.line().contains("\"remaining\":7")));
    assert_eq!(watch.interrupt(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_is_said_even_if_the_status_cannot_be_read() {
    let server = Testbed::from_env().redis().await.unwrap();
    let namespace = common::namespace("cut");
    let direct = Cli::on(&server.patient_url(), &namespace, "100/h");
    // Now the server has the script, and each call is one request.
    assert_eq!(direct.run(&["charge", "k3y", "3"]).code, 0);
    let address = server.url().strip_prefix("redis://").unwrap().trim_end_matches('/').to_owned();
    let cut_at = |count| Cli::on(&cutter(address.clone(), "k3y", count), &namespace, "100/h");

    let ran = cut_at(2).run(&["charge", "k3y", "30"]);
    ran.fails(1, &["error: charged 30 to k3y, but its status cannot be read (redis at 127.0.0.1:"]);
    assert!(!ran.stderr.contains("been charged") && !ran.stderr.contains("try again"), "{ran:?}");
    assert_eq!(direct.run(&["peek", "k3y", "--json"]).only_json()["limits"][0]["used"], 33);

    let ran = cut_at(3).run(&["reset", "k3y", "--yes"]);
    ran.fails(1, &["error: reset k3y, but its status cannot be read (redis at 127.0.0.1:"]);
    assert!(!ran.stderr.contains("been charged") && !ran.stderr.contains("try again"), "{ran:?}");
    assert_eq!(direct.run(&["peek", "k3y", "--json"]).only_json()["limits"][0]["used"], 0);
}

/// A proxy that closes each connection at the request that is the `count`th to contain `text`, and at each request after it.
/// Returns its URL.
fn cutter(server: String, text: &'static str, count: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/?timeout=60s", listener.local_addr().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut replies, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut replies, &mut to_client));
            let seen = seen.clone();
            thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(length @ 1..) = client.read(&mut buffer) {
                    let request = &buffer[..length];
                    let contains = request.windows(text.len()).any(|part| part == text.as_bytes());
                    if seen.fetch_add(usize::from(contains), Ordering::Relaxed) + usize::from(contains)
                        >= count
                    {
                        break;
                    }
                    server.write_all(request).unwrap();
                }
                // The program may have closed it already.
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    url
}
