//! Servers in containers.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use testcontainers::bollard::Docker;
use testcontainers::bollard::models::{HostConfig, PortBinding};
use testcontainers::bollard::query_parameters::{CreateImageOptionsBuilder, KillContainerOptions};
use testcontainers::core::IntoContainerPort as _;
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, GenericImage, ImageExt as _};
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};

use crate::guardian::Guardian;
use crate::package::last_lines;
use crate::port::Port;
use crate::program;
use crate::server::{Body, Server};
use crate::service::{Placement, Recipe, Service};

/// How long the daemon may take to answer.
const GREETING: Duration = Duration::from_secs(2);
/// How long a pull may take between messages from the registry, and in total.
const SILENCE: Duration = Duration::from_secs(15);
const PULL: Duration = Duration::from_secs(180);
/// How often a container is asked to freeze.
const ATTEMPTS: u32 = 10;
/// How long removing a container may take.
const REMOVAL: Duration = Duration::from_secs(20);
/// The prefix of the images that `cargo xtask images` builds.
const LOCAL: &str = "ratelimit-local/";

/// Starts each of `services` in its own container. Several containers share one network, so that they reach each other at
/// the addresses that clients use.
pub(crate) async fn start(
    recipe: &'static Recipe,
    image: Option<&String>,
    services: &[Arc<dyn Service>],
) -> Result<Vec<Server>, String> {
    let image = image.cloned();
    let services = services.to_vec();
    // The daemon's client belongs to the runtime that it was first used on, and a test's runtime ends with the test.
    run(async move { start_here(recipe, image, &services).await }).await
}

async fn start_here(
    recipe: &'static Recipe,
    image: Option<String>,
    services: &[Arc<dyn Service>],
) -> Result<Vec<Server>, String> {
    let docker = connect().await?;
    let image = find_image(&docker, recipe, image).await?;
    let ports = services.iter().map(|_| Port::reserve()).collect::<Result<Vec<_>, _>>();
    let ports = ports.map_err(|error| error.to_string())?;
    let numbers: Vec<u16> = ports.iter().map(Port::number).collect();
    let network = match numbers.len() {
        1 => None,
        _ => Some(Arc::new(Container::run(&docker, &image, idle(numbers)).await?)),
    };
    let mut servers = Vec::with_capacity(services.len());
    for (service, port) in services.iter().zip(ports) {
        let place = Placement { host: "0.0.0.0", port: port.number(), folder: "/tmp" };
        let mut command = vec![recipe.program.to_owned()];
        command.extend(service.arguments(place));
        let attach = match &network {
            Some(holder) => Network::Of(holder.id.clone()),
            None => Network::Ports(vec![port.number()]),
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let run = Run { command, environment: service.environment(place), network: attach };
        let container = Container::run(&docker, &image, run).await?;
        eprintln!("{}: container {:.12} of {image} on {address}", recipe.name, container.id);
        let body = Box::new(Contained { container, _network: network.clone(), _port: port });
        let server = Server::started(recipe.name, address, Arc::clone(service), body).await;
        servers.push(server.map_err(|error| error.to_string())?);
    }
    Ok(servers)
}

/// The command of the container whose network the others use.
fn idle(ports: Vec<u16>) -> Run {
    let command = ["sleep", "infinity"].map(str::to_owned).to_vec();
    Run { command, environment: Vec::new(), network: Network::Ports(ports) }
}

async fn connect() -> Result<Docker, String> {
    let docker = Docker::connect_with_defaults().map_err(|error| format!("no Docker daemon: {error}"))?;
    match tokio::time::timeout(GREETING, docker.ping()).await {
        Ok(Ok(_)) => Ok(docker),
        Ok(Err(error)) => Err(format!("no Docker daemon answers: {error}")),
        Err(_) => Err(format!("the Docker daemon did not answer within {GREETING:?}")),
    }
}

/// The image to use: the named one, otherwise the official one, otherwise a local one of the same kind. Pulls only if none
/// is present.
async fn find_image(docker: &Docker, recipe: &Recipe, named: Option<String>) -> Result<String, String> {
    let wanted = named.clone().unwrap_or_else(|| recipe.image.to_owned());
    if docker.inspect_image(&wanted).await.is_ok() {
        return Ok(wanted);
    }
    let local = format!("{LOCAL}{}", recipe.image);
    if named.is_none() && docker.inspect_image(&local).await.is_ok() {
        return Ok(local);
    }
    eprintln!("{}: pulling {wanted}", recipe.name);
    let pulled = tokio::time::timeout(PULL, pull(docker, &wanted)).await;
    let pulled = pulled.unwrap_or_else(|_| Err(format!("not finished within {PULL:?}")));
    pulled.map_err(|reason| format!("{wanted} is not present, and pulling it failed: {reason}"))?;
    Ok(wanted)
}

async fn pull(docker: &Docker, image: &str) -> Result<(), String> {
    let (name, tag) = split_tag(image);
    let options = CreateImageOptionsBuilder::new().from_image(name).tag(tag).build();
    let mut news = std::pin::pin!(docker.create_image(Some(options), None, None));
    loop {
        match tokio::time::timeout(SILENCE, news.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(None) => return Ok(()),
            Err(_) => return Err(format!("no progress for {SILENCE:?}")),
        }
    }
}

/// Name and tag: a colon before the last slash belongs to a registry's port.
fn split_tag(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// How a container is reached.
enum Network {
    /// At these ports of the loopback interface.
    Ports(Vec<u16>),
    /// Through the network of the container with this id.
    Of(String),
}

impl Network {
    fn ports(&self) -> &[u16] {
        match self {
            Self::Ports(ports) => ports,
            Self::Of(_) => &[],
        }
    }

    fn apply(&self, config: &mut HostConfig) {
        config.publish_all_ports = Some(false);
        match self {
            Self::Ports(ports) => {
                let bind = |port: &u16| {
                    let binding = PortBinding {
                        host_ip: Some("127.0.0.1".to_owned()),
                        host_port: Some(port.to_string()),
                    };
                    (format!("{port}/tcp"), Some(vec![binding]))
                };
                config.port_bindings = Some(ports.iter().map(bind).collect::<HashMap<_, _>>());
            }
            Self::Of(id) => config.network_mode = Some(format!("container:{id}")),
        }
    }
}

/// The command of a container.
struct Run {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    network: Network,
}

/// A container, removed when dropped.
struct Container {
    id: String,
    docker: Docker,
    inner: Mutex<Option<ContainerAsync<GenericImage>>>,
    _guardian: Option<Guardian>,
}

impl Container {
    async fn run(docker: &Docker, image: &str, run: Run) -> Result<Self, String> {
        let Run { command, environment, network } = run;
        let (name, tag) = split_tag(image);
        let mut request = GenericImage::new(name, tag);
        for port in network.ports() {
            request = request.with_exposed_port(port.tcp());
        }
        let mut request = request.with_cmd(command);
        for (name, value) in environment {
            request = request.with_env_var(name, value);
        }
        let request = request.with_host_config_modifier(move |config| network.apply(config));
        let inner = request.start().await.map_err(|error| format!("a container of {image}: {error}"))?;
        let id = inner.id().to_owned();
        let guardian = program::find("docker")
            .and_then(|docker| Guardian::of_container(&docker.to_string_lossy(), &id).ok());
        Ok(Self { id, docker: docker.clone(), inner: Mutex::new(Some(inner)), _guardian: guardian })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().map(Option::take).unwrap_or_default();
        let (done, wait) = std::sync::mpsc::channel();
        let Ok(runtime) = runtime() else { return };
        runtime.spawn(async move {
            if let Some(inner) = inner {
                let _ = inner.rm().await;
            }
            let _ = done.send(());
        });
        let waiting = move || wait.recv_timeout(REMOVAL);
        let _ = match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            // The removal may need this thread, so another thread takes over its tasks.
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(waiting),
            _ => waiting(),
        };
    }
}

/// A server in a container.
struct Contained {
    container: Container,
    // Declared after the container, so that it is dropped later.
    _network: Option<Arc<Container>>,
    _port: Port,
}

impl Contained {
    async fn tell<F, T>(&self, work: impl FnOnce(Docker, String) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, testcontainers::bollard::errors::Error>> + Send + 'static,
        T: Send + 'static,
    {
        let work = work(self.container.docker.clone(), self.container.id.clone());
        run(async move { work.await.map_err(|error| error.to_string()) }).await
    }

    /// Whether it is running, and whether it is frozen.
    async fn state(&self) -> Result<(bool, bool), String> {
        let container =
            self.tell(|docker, id| async move { docker.inspect_container(&id, None).await }).await?;
        let state = container.state.unwrap_or_default();
        Ok((state.running.unwrap_or(false), state.paused.unwrap_or(false)))
    }
}

#[async_trait]
impl Body for Contained {
    async fn kill(&self) -> Result<(), String> {
        let (running, paused) = self.state().await?;
        if paused {
            self.thaw().await?;
        }
        if !running {
            return Ok(());
        }
        self.tell(|docker, id| async move {
            docker.kill_container(&id, None::<KillContainerOptions>).await?;
            let mut end = std::pin::pin!(docker.wait_container(&id, None));
            while end.next().await.is_some() {}
            Ok(())
        })
        .await
    }

    async fn start(&self) -> Result<(), String> {
        self.tell(|docker, id| async move { docker.start_container(&id, None).await }).await
    }

    /// On a busy machine the container's runtime may give up before all processes stand still, and thaws them again.
    async fn freeze(&self) -> Result<(), String> {
        for _ in 0..ATTEMPTS {
            match self.tell(|docker, id| async move { docker.pause_container(&id).await }).await {
                Err(error) if error.contains("unable to freeze") => {}
                ended => return ended,
            }
        }
        Err(format!("the container's runtime could not freeze it in {ATTEMPTS} attempts"))
    }

    async fn thaw(&self) -> Result<(), String> {
        self.tell(|docker, id| async move { docker.unpause_container(&id).await }).await
    }

    async fn obituary(&self) -> Option<String> {
        if self.state().await.ok()?.0 {
            return None;
        }
        let options = testcontainers::bollard::query_parameters::LogsOptionsBuilder::new();
        let options = options.stdout(true).stderr(true).tail("8").build();
        let log = self.tell(|docker, id| async move {
            let lines = docker.logs(&id, Some(options)).filter_map(|line| async { line.ok() });
            Ok(lines.map(|line| line.to_string()).collect::<Vec<_>>().await.concat())
        });
        Some(last_lines(&log.await.unwrap_or_default(), 8))
    }
}

/// The runtime for everything about containers. It lives as long as the process.
fn runtime() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = RUNTIME.get_or_init(|| build().map_err(|error| error.to_string()));
    runtime.as_ref().map_err(Clone::clone)
}

async fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    runtime()?.spawn(work).await.map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use super::split_tag;

    #[test]
    fn a_registry_port_is_not_a_tag() {
        assert_eq!(split_tag("redis:7"), ("redis", "7"));
        assert_eq!(split_tag("redis"), ("redis", "latest"));
        assert_eq!(split_tag("localhost:5000/redis"), ("localhost:5000/redis", "latest"));
        assert_eq!(split_tag("localhost:5000/redis:7"), ("localhost:5000/redis", "7"));
    }
}
