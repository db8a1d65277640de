//! Servers end with the process that started them, however that ends.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use ratelimit_testbed::{Settings, Testbed, table};

/// The variable with the server's name for the process that is going to be killed.
const ROLE: &str = "TESTBED_TEST_VICTIM";

/// Not a test on its own: [`servers_end_with_a_process_that_is_killed`] runs it in another process.
#[tokio::test]
async fn victim() {
    let Ok(name) = std::env::var(ROLE) else { return };
    let settings = Settings { addresses: Default::default(), ..Settings::from_env() };
    let row = table().into_iter().find(|row| row.name == name).expect("a server of that name");
    let servers = row.obtain(&Testbed::new(settings)).await.unwrap_or_else(|error| panic!("{error}"));
    // A frozen server has to be cleaned up as well.
    servers[0].freeze().await.expect("freeze");
    println!("\nlistens {}", servers[0].address());
    std::future::pending::<()>().await;
}

#[test]
fn servers_end_with_a_process_that_is_killed() {
    for name in ["redis", "postgres"] {
        ends_with_its_process(name);
    }
}

fn ends_with_its_process(name: &str) {
    let program = std::env::current_exe().expect("this program");
    let mut victim = Command::new(program)
        .args(["--exact", "victim", "--nocapture"])
        .env(ROLE, name)
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
    // Does not bound how long it takes, only checks that it happens.
    for _ in 0..1000 {
        if TcpStream::connect(address).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the server at {address} outlives the process that started it");
}
