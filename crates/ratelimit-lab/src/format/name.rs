//! The names of the formats.

use serde::Serialize;

/// A format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The common log format of Apache, also with more fields at the end, such as the combined format of Apache and nginx
    #[value(alias = "common")]
    Combined,
    /// One JSON object on each line
    Json,
    /// Comma-separated values (or semicolons, or tabs) under a line with the names of the columns
    Csv,
    /// The extended log format of W3C, as IIS and CloudFront write it, under a comment `#Fields:`
    W3c,
    /// The HTTP format of HAProxy
    Haproxy,
    /// Amazon's Application Load Balancer
    Alb,
    /// Amazon's Classic Load Balancer
    Elb,
    /// The default text of Envoy and Istio
    Envoy,
    /// Squid's own
    Squid,
    /// Nginx Proxy Manager
    Npm,
    /// Labeled values between tabs
    Ltsv,
    /// What `--pattern` describes
    #[value(skip)]
    Pattern,
}

impl Format {
    /// Whether its fields have names.
    pub(crate) fn has_names(self) -> bool {
        matches!(self, Self::Json | Self::Csv | Self::W3c | Self::Ltsv | Self::Pattern)
    }
}
