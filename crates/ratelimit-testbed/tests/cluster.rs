//! A Redis Cluster is complete when it is started, and again after a restart.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use ratelimit_testbed::{Cluster, Settings, Testbed};

fn try_send_command(address: SocketAddr, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn send_command(address: SocketAddr, command: &str) -> String {
    try_send_command(address, command).expect(command)
}

fn check(cluster: &Cluster) {
    assert_eq!(cluster.nodes().len(), 3);
    for node in cluster.nodes() {
        let info = send_command(node.address(), "CLUSTER INFO");
        for line in ["cluster_state:ok", "cluster_known_nodes:3", "cluster_slots_ok:16384"] {
            assert!(info.contains(line), "{line} is missing at {}: {info}", node.address());
        }
        let slots = send_command(node.address(), "CLUSTER SLOTS");
        for other in cluster.nodes() {
            let place = format!("127.0.0.1\r\n:{}\r\n", other.address().port());
            assert!(slots.contains(&place), "{} is not told at {}: {slots}", other.address(), node.address());
        }
    }
}

#[tokio::test]
async fn three_masters_agree_also_after_a_restart() {
    let settings = Settings { addresses: Default::default(), ..Settings::from_env() };
    let cluster = Testbed::new(settings).redis_cluster().await.unwrap_or_else(|error| panic!("{error}"));
    check(&cluster);
    cluster.kill().await.expect("kill");
    for node in cluster.nodes() {
        // The proxy in front of a container may accept the connection.
        let answer = try_send_command(node.address(), "PING").unwrap_or_default();
        assert_eq!(answer, "", "{} answers", node.address());
    }
    cluster.start().await.expect("start");
    check(&cluster);
}

#[tokio::test]
async fn a_replica_takes_the_place_of_its_master() {
    let settings = Settings { addresses: Default::default(), ..Settings::from_env() };
    let cluster = Testbed::new(settings).redis_cluster_with_replicas().await;
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(cluster.nodes().len(), 6);
    let [master, replica] = [0, 3].map(|index| &cluster.nodes()[index]);
    assert!(send_command(replica.address(), "ROLE").contains(&format!(":{}\r\n", master.address().port())));
    master.kill().await.expect("kill");
    let promoted = async {
        while !send_command(replica.address(), "ROLE").contains("master") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), promoted).await.expect("a new master");
}
