//! Listening: a bounded number of connections, which are drained at the end.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tracing::Instrument as _;

use crate::args::Listen;
use crate::trace;

/// How long to wait after the system refused a connection, as it does without free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The bounds of connections.
#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) connections: usize,
    /// How long a connection may stay silent.
    pub(crate) idle: Duration,
    pub(crate) tls: Option<TlsAcceptor>,
}

/// A connection, over TLS or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection of any kind.
pub(crate) type Connection = Box<dyn Stream>;

impl Bounds {
    /// Makes a connection that ends if nothing moves; over TLS if that is wanted.
    async fn open(&self, stream: TcpStream) -> Option<Connection> {
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // HTTP/2 asks silent clients whether they are there, and needs time for the answer.
        stream.set_read_timeout(Some(self.idle * 2));
        stream.set_write_timeout(Some(self.idle));
        let stream = Box::pin(stream);
        match &self.tls {
            None => Some(Box::new(stream)),
            Some(tls) => match timeout(self.idle, tls.accept(stream)).await {
                Ok(Ok(stream)) => Some(Box::new(stream)),
                _ => None,
            },
        }
    }
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// It serves, and says that it is not ready: whoever chooses among servers should take another one.
    Leaving,
    /// It accepts no more connections, and ends those that it has.
    Ending,
}

/// Says how far the server is. Clones say the same.
#[derive(Clone, Debug)]
pub(crate) struct Ending(watch::Receiver<Phase>);

impl Ending {
    pub(crate) fn new() -> (watch::Sender<Phase>, Self) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (sender, Self(receiver))
    }

    /// Completes when the server begins to end.
    pub(crate) async fn begins(&mut self) {
        // Without a sender, nobody can end it any more.
        let _ = self.0.wait_for(|phase| *phase == Phase::Ending).await;
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.0.borrow() == Phase::Serving
    }
}

/// Binds to an address, and says which one it is; to none if there is none.
pub(crate) async fn bind(
    listen: Listen,
    option: &str,
) -> anyhow::Result<(Option<TcpListener>, Option<SocketAddr>)> {
    let Some(address) = listen.0 else { return Ok((None, None)) };
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is another server running? choose another address with {option}, or off")
    })?;
    let address = listener.local_addr()?;
    Ok((Some(listener), Some(address)))
}

/// Accepts connections until the server ends, and passes each to `serve` with its permit, on a task. Then waits for them.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    bounds: Bounds,
    mut ending: Ending,
    serve: impl Fn(Connection, SocketAddr) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(bounds.connections));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = ending.begins() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = async {
                let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                Ok::<_, io::Error>((listener.accept().await?, place))
            } => accepted,
        };
        match accepted {
            Ok(((stream, peer), place)) => {
                let (bounds, serve) = (bounds.clone(), serve.clone());
                tasks.spawn(async move {
                    if let Some(connection) = bounds.open(stream).await {
                        serve(connection, peer).await;
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Serves HTTP/1 and HTTP/2.
pub(crate) async fn serve_http<F, B>(
    listener: TcpListener,
    bounds: Bounds,
    ending: Ending,
    answer: impl Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let of_end = ending.clone();
    accept(listener, bounds.clone(), ending, move |stream, peer| {
        let (answer, idle, mut ending) = (answer.clone(), bounds.idle, of_end.clone());
        async move {
            let service = service_fn(move |request| {
                let span = trace::request(request.headers());
                answer(request, peer.ip()).map(Ok::<_, Infallible>).instrument(span)
            });
            let builder = builder(idle);
            let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
            // Errors of a connection are the client's.
            tokio::select! {
                _ = connection.as_mut() => return,
                () = ending.begins() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    })
    .await;
}

fn builder(idle: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_headers(100)
        .max_buf_size(64 * 1_024)
        .pipeline_flush(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(idle)
        .keep_alive_timeout(idle.min(Duration::from_secs(10)))
        .max_concurrent_streams(1_000)
        .max_header_list_size(64 * 1_024)
        .max_frame_size(64 * 1_024);
    builder
}
