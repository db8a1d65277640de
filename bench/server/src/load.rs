//! Connections that ask as fast as they are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::wire::Wire;

/// How many keys are asked for, in turn.
const KEYS: u64 = 10_000;

/// How long what is measured runs before.
const WARM_UP: Duration = Duration::from_millis(300);

/// What a measurement found.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) decisions: u64,
    /// The time from sending a batch of requests until the last answer, in microseconds, sorted.
    times: Vec<u32>,
}

impl Measured {
    /// A percentile of the times.
    pub(crate) fn at(&self, percent: usize) -> u32 {
        let place = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(place).copied().unwrap_or_default()
    }

    /// Adds a batch that began and has just ended, if it is not one of the warm-up.
    pub(crate) fn add(&mut self, depth: usize, warm: Instant, began: Instant) {
        if began >= warm {
            self.decisions += depth as u64;
            self.times.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// All of several connections.
    pub(crate) fn of(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.decisions += part.decisions;
            all.times.extend(part.times);
        }
        all.times.sort_unstable();
        all
    }
}

/// When to measure.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) warm: Instant,
    pub(crate) end: Instant,
}

impl Span {
    pub(crate) fn from_now(time: Duration) -> Self {
        let warm = Instant::now() + WARM_UP;
        Self { warm, end: warm + time }
    }
}

/// The numbers of the keys, in an order that spreads them.
#[derive(Clone, Default)]
pub(crate) struct Keys(Arc<AtomicU64>);

impl Keys {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(7_919, Ordering::Relaxed) % KEYS
    }
}

/// Measures a protocol whose requests and answers are bytes on a connection.
pub(crate) async fn measure(
    wire: &Arc<dyn Wire>,
    connections: usize,
    depth: usize,
    time: Duration,
) -> Result<Measured> {
    let (span, keys) = (Span::from_now(time), Keys::default());
    let tasks: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(connection(Arc::clone(wire), keys.clone(), depth, span)))
        .collect();
    let mut parts = Vec::with_capacity(connections);
    for task in tasks {
        parts.push(task.await??);
    }
    Ok(Measured::of(parts))
}

async fn connection(wire: Arc<dyn Wire>, keys: Keys, depth: usize, span: Span) -> Result<Measured> {
    let mut stream = TcpStream::connect(wire.address()).await?;
    stream.set_nodelay(true)?;
    let (mut requests, mut answers, mut measured) = (Vec::new(), Vec::new(), Measured::default());
    while Instant::now() < span.end {
        requests.clear();
        for _ in 0..depth {
            wire.request(keys.next(), &mut requests);
        }
        let began = Instant::now();
        stream.write_all(&requests).await?;
        let (mut left, mut read) = (depth, 0);
        while left > 0 {
            while left > 0
                && let Some(length) = wire.answer(&answers[read..])?
            {
                read += length;
                left -= 1;
            }
            if left > 0 {
                let length = stream.read_buf(&mut answers).await.context("reading an answer")?;
                anyhow::ensure!(length > 0, "the server closed the connection");
            }
        }
        answers.drain(..read);
        measured.add(depth, span.warm, began);
    }
    Ok(measured)
}
