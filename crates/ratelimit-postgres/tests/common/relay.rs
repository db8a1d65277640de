//! A port that forwards to a server: a name that may lead to another server, or a network that loses everything.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Relay {
    port: u16,
    state: Arc<State>,
}

struct State {
    target: Mutex<String>,
    opened: AtomicUsize,
    /// The number of the first connection that is not silent.
    heard: AtomicUsize,
}

impl Relay {
    pub(crate) async fn to(target: &impl ToString) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Mutex::new(target.to_string());
        let state = Arc::new(State { target, opened: AtomicUsize::new(0), heard: AtomicUsize::new(0) });
        tokio::spawn(accept(listener, state.clone()));
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections have been opened.
    pub(crate) fn opened(&self) -> usize {
        self.state.opened.load(Ordering::SeqCst)
    }

    /// Further connections lead to this server.
    pub(crate) fn lead_to(&self, target: &impl ToString) {
        *self.state.target.lock().unwrap() = target.to_string();
    }

    /// Discards everything on the connections before this number, and stays silent. `usize::MAX` stands for all.
    pub(crate) fn silence(&self, before: usize) {
        self.state.heard.store(before, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((near, _)) = listener.accept().await {
        let number = state.opened.fetch_add(1, Ordering::SeqCst);
        let (state, target) = (state.clone(), state.target.lock().unwrap().clone());
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let (near, far) = (near.into_split(), far.into_split());
            tokio::join!(pump(near.0, far.1, &state, number), pump(far.0, near.1, &state, number));
        });
    }
}

async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, state: &State, number: usize) {
    let mut bytes = [0; 4096];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let count = match from.try_read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut rest = &bytes[..count];
        while !rest.is_empty() && number >= state.heard.load(Ordering::SeqCst) {
            if to.writable().await.is_err() {
                return;
            }
            if let Ok(written) = to.try_write(rest) {
                rest = &rest[written..];
            }
        }
    }
}
