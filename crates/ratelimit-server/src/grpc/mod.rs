//! The door for Envoy: its rate limit service over gRPC.

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod envoy;
mod service;
mod units;

use std::convert::Infallible;
use std::sync::Arc;

use http::HeaderName;
use tokio::net::TcpListener;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use self::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use crate::checks::Checks;
use crate::listen::{Bounds, Ending, serve_http};

/// The maximum length of a message.
const LARGEST: usize = 256 * 1_024;

/// What the reflection service describes.
const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

/// The name of the service, as health checks ask for it.
const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The path of its method.
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The services.
pub(crate) struct Door {
    limits: RateLimitServiceServer<service::Service>,
    others: Routes,
}

impl Door {
    /// Makes them, and what sets their health.
    pub(crate) async fn new(
        checks: Arc<Checks>,
        receipt_header: Option<HeaderName>,
    ) -> anyhow::Result<(Self, HealthReporter)> {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status(NAME, ServingStatus::Serving).await;
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Clients such as Python's grpcio-reflection know only the older one.
        let (reflection, older) = (described().build_v1()?, described().build_v1alpha()?);
        let limits = RateLimitServiceServer::new(service::Service { checks, receipt_header })
            .max_decoding_message_size(LARGEST);
        let others = Routes::new(health).add_service(reflection).add_service(older).prepare();
        Ok((Self { limits, others }, reporter))
    }

    /// Answers until the server ends.
    pub(crate) async fn serve(self, listener: TcpListener, bounds: Bounds, ending: Ending) {
        serve_http(listener, bounds, ending, move |request, _| {
            let (mut limits, mut others) = (self.limits.clone(), self.others.clone());
            async move {
                // Checks need no router.
                let answered = match request.uri().path() == METHOD {
                    true => limits.call(request).await,
                    false => others.call(request).await,
                };
                answered.unwrap_or_else(|error: Infallible| match error {})
            }
        })
        .await;
    }
}

/// Tells health checks that the server ends.
pub(crate) async fn not_ready(reporter: &HealthReporter) {
    reporter.set_service_status(NAME, ServingStatus::NotServing).await;
    reporter.set_service_status("", ServingStatus::NotServing).await;
}
