//! Calls the services without a network: the time of a layer per request, without that of sockets.
#![allow(clippy::disallowed_methods, reason = "measures how long calls take")]

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use clap::ValueEnum as _;
use futures::FutureExt as _;
use tower::{Layer as _, Service};

use crate::contestants::{Around, Contestant};
use crate::others::Others;

/// The number of calls in a measurement: few, so that some measurements are not interrupted.
const CALLS: u32 = 1_000;

/// Calls each service in turn, and prints a line for each: its name, and the median, minimum and maximum time of a call in
/// nanoseconds. For cold calls, other code uses the processor between any two calls.
pub(crate) fn run(contestants: &[Contestant], rounds: usize, cold: bool) -> anyhow::Result<()> {
    let others = cold.then(Others::new);
    let mut figures = Vec::new();
    let mut measures = contestants.iter().map(|one| measure(*one)).collect::<anyhow::Result<Vec<_>>>()?;
    for round in 0..=rounds {
        for (place, measure) in measures.iter_mut().enumerate() {
            let nanos = measure(others.as_ref())?;
            // The first round only warms up.
            if round > 0 {
                figures.push((place, nanos));
            }
        }
    }
    for (place, contestant) in contestants.iter().enumerate() {
        let of_this = figures.iter().filter(|(of, _)| *of == place);
        let mut measured: Vec<f64> = of_this.map(|(_, nanos)| *nanos).collect();
        measured.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (measured.first(), measured.last()) else { continue };
        let name = contestant.to_possible_value().context("a contestant without a name")?;
        writeln!(
            io::stdout(),
            "{} {:.0} {least:.0} {most:.0}",
            name.get_name(),
            measured[measured.len() / 2]
        )?;
    }
    Ok(())
}

type Measure = Box<dyn FnMut(Option<&Others>) -> anyhow::Result<f64>>;

fn measure(contestant: Contestant) -> anyhow::Result<Measure> {
    let router = contestant.router()?;
    Ok(match contestant.around()? {
        None => measure_service(router),
        Some(Around::Ours(layer)) => measure_service(layer.layer(router)),
        Some(Around::Governor(layer)) => measure_service(layer.layer(router)),
        Some(Around::GovernorHeaders(layer)) => measure_service(layer.layer(router)),
    })
}

fn measure_service<S>(mut service: S) -> Measure
where
    S: Service<Request, Response = Response, Error = Infallible> + 'static,
{
    Box::new(move |others| match others {
        None => nanos(&mut service),
        Some(others) => cold_nanos(&mut service, others),
    })
}

/// The nanoseconds of each call.
fn nanos<S>(service: &mut S) -> anyhow::Result<f64>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let begun = Instant::now();
    for _ in 0..CALLS {
        call(service, request())?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS))
}

/// The median of cold calls, including the time to read the clock.
fn cold_nanos<S>(service: &mut S, others: &Others) -> anyhow::Result<f64>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let mut calls = Vec::new();
    for _ in 0..CALLS / 4 {
        let request = request();
        others.run();
        let begun = Instant::now();
        call(service, request)?;
        calls.push(begun.elapsed());
    }
    calls.sort();
    Ok(calls[calls.len() / 2].as_secs_f64() * 1e9)
}

fn request() -> Request {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 4_711));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

#[inline]
fn call<S>(service: &mut S, request: Request) -> anyhow::Result<()>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let Some(Ok(response)) = service.call(black_box(request)).now_or_never() else {
        anyhow::bail!("a service did not answer at once");
    };
    ensure!(response.status().is_success(), "a service answered {}", response.status());
    black_box(response);
    Ok(())
}
