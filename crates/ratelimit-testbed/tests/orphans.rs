//! What was started ends with the process that started it, however that ends.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use ratelimit_testbed::{Settings, Testbed};

/// Set for the process that is going to be killed.
const ROLE: &str = "TESTBED_TEST_VICTIM";

/// Not a test of its own: what [`servers_end_with_a_process_that_is_killed`] runs in another process.
#[tokio::test]
async fn victim() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let settings = Settings { addresses: Default::default(), ..Settings::from_env() };
    let server = Testbed::new(settings).redis().await.unwrap_or_else(|error| panic!("{error}"));
    println!("\nlistens {}", server.address());
    std::future::pending::<()>().await;
}

#[test]
fn servers_end_with_a_process_that_is_killed() {
    let program = std::env::current_exe().expect("this program");
    let mut victim = Command::new(program)
        .args(["--exact", "victim", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let lines = BufReader::new(victim.stdout.take().expect("stdout")).lines();
    let address: SocketAddr = lines
        .map(|line| line.expect("a line"))
        .find_map(|line| line.strip_prefix("listens ").and_then(|address| address.parse().ok()))
        .expect("an address");
    assert!(TcpStream::connect(address).is_ok());
    victim.kill().expect("kill");
    victim.wait().expect("wait");
    // No bound on how fast, only that it happens.
    for _ in 0..1000 {
        if TcpStream::connect(address).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the server at {address} outlives the process that started it");
}
