//! The service as its users see it: a process that is called by a tonic client.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

struct Instance {
    process: Child,
    url: String,
}

impl Instance {
    fn start(limit: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_grpc"))
            .args(["--listen", "127.0.0.1:0", "--limit", limit])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
        Self { process, url }
    }

    async fn client(&self) -> HealthClient<Channel> {
        HealthClient::new(Endpoint::from_shared(self.url.clone()).unwrap().connect().await.unwrap())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn call(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest { service: String::new() }).await.map(|_| ())
}

#[tokio::test]
async fn many_callers_get_no_more_than_the_limit() {
    let service = Instance::start("7/day log");
    let calls = (0..8).map(|_| async {
        let mut client = service.client().await; // a connection of its own
        let mut admitted = 0;
        for _ in 0..3 {
            match call(&mut client).await {
                Ok(()) => admitted += 1,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
            }
        }
        admitted
    });
    assert_eq!(futures::future::join_all(calls).await.into_iter().sum::<u32>(), 7);
}

#[tokio::test]
async fn clients_that_obey_retry_info_are_admitted() {
    let service = Instance::start("2/s log");
    let mut client = service.client().await;
    let (mut admitted, mut waited) = (0, 0);
    while admitted < 7 {
        let Err(status) = call(&mut client).await else {
            admitted += 1;
            continue;
        };
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let wait = status.get_details_retry_info().and_then(|info| info.retry_delay).expect("a RetryInfo");
        tokio::time::sleep(wait).await;
        waited += 1;
        call(&mut client).await.expect("it was waited as told");
        admitted += 1;
    }
    assert!(waited > 0);
}
