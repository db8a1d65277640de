//! What is measured: servers, and what is asked of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ratelimit_testbed::{Application, Envoy, Port, Server, Testbed};

use crate::grpc::{self, Method};
use crate::load::{self, Measured};
use crate::wire::{Command, Get, Post, Wire};

/// A limit that nobody reaches.
const CONFIGURATION: &str =
    "[[policies]]\nname = \"bench\"\nkey = [\"key\"]\nlimit = \"1000000/s burst 1000000\"\n";

/// A server, asked over a protocol.
pub(crate) struct Contestant {
    pub(crate) protocol: &'static str,
    pub(crate) name: &'static str,
    pub(crate) store: &'static str,
    asked: Asked,
    /// What runs as long as this.
    _held: Arc<Held>,
}

/// A server, and its ports beside the first one.
struct Held {
    _server: Server,
    _ports: Vec<Port>,
    /// Another one that it needs.
    _further: Option<Arc<Held>>,
}

/// Envoy's filter that asks a rate limit server.
const FILTER: &str = include_str!("filter.yaml");

enum Asked {
    Bytes(Arc<dyn Wire>),
    Grpc(SocketAddr, Method),
}

impl Contestant {
    pub(crate) async fn measure(&self, connections: usize, depth: usize, time: Duration) -> Result<Measured> {
        match &self.asked {
            Asked::Bytes(wire) => load::measure(wire, connections, depth, time).await,
            Asked::Grpc(address, method) => grpc::measure(*address, *method, connections, depth, time).await,
        }
    }

    /// All of them, running.
    pub(crate) async fn all(server: &Path, throttlecrab: Option<&Path>) -> Result<Vec<Self>> {
        let redis = Testbed::from_env().redis().await?;
        let mut all = Vec::new();
        Self::ours(server, "memory", &[], &mut all).await?;
        if let Some(program) = throttlecrab {
            Self::throttlecrab(program, &mut all).await?;
        }
        // Its own time limit would turn to the fallback under load, which is not what is measured.
        let url = redis.patient_url();
        Self::ours(server, "Redis", &["--store", &url, "--timeout", "60s"], &mut all).await?;
        let words = ["INCR", "{key}"].map(str::to_owned).to_vec();
        let command = Command { address: redis.address(), words, admits: None };
        all.push(Self {
            protocol: "Redis",
            name: "Redis itself, INCR",
            store: "Redis",
            asked: Asked::Bytes(Arc::new(command)),
            _held: Arc::new(Held { _server: redis, _ports: Vec::new(), _further: None }),
        });
        all.sort_by_key(|contestant| (contestant.store == "Redis", contestant.protocol));
        Ok(all)
    }

    async fn ours(program: &Path, store: &'static str, options: &[&str], all: &mut Vec<Self>) -> Result<()> {
        let [grpc, redis] = [Port::reserve()?, Port::reserve()?];
        let [grpc_address, redis_address] = [&grpc, &redis].map(address);
        let script = "printf %s \"$1\" > server.toml; shift; exec \"$@\"";
        let mut arguments = ["-c", script, "sh", CONFIGURATION].map(str::to_owned).to_vec();
        arguments.push(program.to_string_lossy().into_owned());
        arguments.extend(["--config", "server.toml", "--http", "127.0.0.1:<port>"].map(str::to_owned));
        arguments.extend(["--grpc".to_owned(), grpc_address.to_string()]);
        arguments.extend(["--redis".to_owned(), redis_address.to_string()]);
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        let application = Application {
            program: "/bin/sh".into(),
            arguments,
            environment: Vec::new(),
            ready: "/ready".into(),
        };
        let running = application.start().await?;
        let words = ["CL.THROTTLE", "{key}", "999999", "1000000", "1"].map(str::to_owned).to_vec();
        let command = Command { address: redis_address, words, admits: Some(0) };
        let body = r#"{"policy":"bench","key":"{key}"}"#.to_owned();
        let post = Post { address: running.address(), path: "/v1/check", body };
        let held = Arc::new(Held { _server: running, _ports: vec![grpc, redis], _further: None });
        if store == "memory" {
            Self::envoy(&held, grpc_address, "none", "none", "", all).await?;
            Self::envoy(&held, grpc_address, "ratelimit-server", store, FILTER, all).await?;
        }
        let asked = [
            ("Redis", Asked::Bytes(Arc::new(command))),
            ("HTTP", Asked::Bytes(Arc::new(post))),
            ("gRPC", Asked::Grpc(grpc_address, Method::Envoy)),
        ];
        all.extend(asked.map(|(protocol, asked)| Self {
            protocol,
            name: "ratelimit-server",
            store,
            asked,
            _held: Arc::clone(&held),
        }));
        Ok(())
    }

    /// Envoy with this filter, which may ask `limits`.
    async fn envoy(
        held: &Arc<Held>,
        limits: SocketAddr,
        name: &'static str,
        store: &'static str,
        filter: &str,
        all: &mut Vec<Self>,
    ) -> Result<()> {
        let service = Port::reserve()?;
        let configuration = include_str!("envoy.yaml")
            .replace("<service>", &service.number().to_string())
            .replace("<limits>", &limits.port().to_string())
            .replace("<filter>", filter);
        let envoy = Testbed::from_env().envoy(Envoy { configuration }).await?;
        let asked = Asked::Bytes(Arc::new(Get { address: envoy.address() }));
        let held = Held { _server: envoy, _ports: vec![service], _further: Some(Arc::clone(held)) };
        all.push(Self { protocol: "Envoy", name, store, asked, _held: Arc::new(held) });
        Ok(())
    }

    async fn throttlecrab(program: &Path, all: &mut Vec<Self>) -> Result<()> {
        let [grpc, redis] = [Port::reserve()?, Port::reserve()?];
        let [grpc_address, redis_address] = [&grpc, &redis].map(address);
        let [grpc_port, redis_port] = [grpc.number(), redis.number()].map(|port| port.to_string());
        let hosts = ["--http", "--http-host", "127.0.0.1", "--http-port", "<port>", "--grpc", "--grpc-host"];
        let mut arguments = hosts.map(str::to_owned).to_vec();
        arguments.extend(["127.0.0.1", "--grpc-port", &grpc_port, "--redis"].map(str::to_owned));
        arguments.extend(["--redis-host", "127.0.0.1", "--redis-port", &redis_port].map(str::to_owned));
        arguments.extend(["--log-level", "warn"].map(str::to_owned));
        let application = Application {
            program: program.to_owned(),
            arguments,
            environment: Vec::new(),
            ready: "/health".into(),
        };
        let running = application.start().await?;
        let words = ["THROTTLE", "{key}", "1000000", "1000000", "1"].map(str::to_owned).to_vec();
        let command = Command { address: redis_address, words, admits: Some(1) };
        let body = r#"{"key":"{key}","max_burst":1000000,"count_per_period":1000000,"period":1}"#.to_owned();
        let post = Post { address: running.address(), path: "/throttle", body };
        let held = Arc::new(Held { _server: running, _ports: vec![grpc, redis], _further: None });
        let asked = [
            ("Redis", Asked::Bytes(Arc::new(command))),
            ("HTTP", Asked::Bytes(Arc::new(post))),
            ("gRPC", Asked::Grpc(grpc_address, Method::Throttlecrab)),
        ];
        all.extend(asked.map(|(protocol, asked)| Self {
            protocol,
            name: "throttlecrab-server",
            store: "memory",
            asked,
            _held: Arc::clone(&held),
        }));
        Ok(())
    }
}

fn address(port: &Port) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port.number()).into()
}
