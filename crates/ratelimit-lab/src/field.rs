//! The fields of a log line, and their names in the logs of usual servers.

/// A field of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The time of the request.
    Time,
    /// The client's address.
    Ip,
    /// The user as whom the client is authenticated.
    User,
    /// The method of the request.
    Method,
    /// The target of the request up to a `?`.
    Path,
    /// The status of the response.
    Status,
    /// The size of the response in bytes.
    Bytes,
    /// The header field `Referer`.
    Referer,
    /// The header field `User-Agent`.
    Agent,
    /// How long the request took.
    Duration,
    /// A field of JSON or a column of CSV with this name. In JSON, `a.b` is also the field `b` of the object `a`.
    Named(Box<str>),
}

impl Field {
    /// The field with this name, as in `--by`. A name other than `ip`, `user`, `method`, `path`, `status`, `bytes`,
    /// `referer` and `agent`, or any name with `field:` before it, is that of a field of JSON or a column of CSV.
    pub fn of_name(name: &str) -> Self {
        match name {
            "ip" => Self::Ip,
            "user" => Self::User,
            "method" => Self::Method,
            "path" => Self::Path,
            "status" => Self::Status,
            "bytes" => Self::Bytes,
            "referer" | "header:referer" => Self::Referer,
            "agent" | "header:user-agent" => Self::Agent,
            _ => Self::Named(name.strip_prefix("field:").unwrap_or(name).into()),
        }
    }

    /// Whether a field with this name has nanoseconds, in which Traefik writes a duration, as Elastic's schema does.
    pub(crate) fn is_in_nanos(&self, name: &str) -> bool {
        *self == Self::Duration && matches!(name, "Duration" | "event.duration")
    }

    /// The names of this field in JSON, CSV and LTSV, and of groups of a [`Pattern`](crate::Pattern): those of nginx, Apache,
    /// Caddy, Traefik, Envoy, Fluentd, Elastic's schema, Cloudflare, Google Cloud and Amazon's load balancers in SQL, and common
    /// ones. If a line has several of them, the first in this list counts. In JSON, `host` may be [`Ip`](Self::Ip), too, as in
    /// Fluentd's records of Apache's logs: if it is an address, next to `code`, and none of these names has a value.
    /// [`Wanted::with_name`](crate::Wanted::with_name) names one field in place of all these.
    pub fn names(&self) -> Vec<&str> {
        let names: &[&str] = match self {
            // The finer ones come first, where their names are certain.
            Self::Time => &[
                "StartUTC",
                "EdgeStartTimestamp",
                "time",
                "timestamp",
                "@timestamp",
                "ts",
                "msec",
                "time_iso8601",
                "start_time",
                "time_local",
                "datetime",
                "date",
            ],
            Self::Ip => &[
                "ip",
                "client_ip",
                "remote_addr",
                "request.client_ip",
                "request.remote_ip",
                "ClientHost",
                "ClientIP",
                "remote_ip",
                "clientip",
                "client.ip",
                "source.ip",
                "httpRequest.remoteIp",
                "client",
                "downstream_remote_address",
                "remote",
                "client.address",
                "source.address",
            ],
            Self::User => &["user", "remote_user", "user_id", "ClientUsername", "username", "user.name"],
            Self::Method => &[
                "method",
                "request_method",
                "request.method",
                "RequestMethod",
                "http.request.method",
                "ClientRequestMethod",
                "httpRequest.requestMethod",
                "request_verb",
            ],
            Self::Path => &[
                "path",
                "uri",
                "request_uri",
                "request.uri",
                "RequestPath",
                "url.path",
                "url.original",
                "url",
                "ClientRequestPath",
                "ClientRequestURI",
                "httpRequest.requestUrl",
                "request_url",
            ],
            Self::Status => &[
                "status",
                "code",
                "response_code",
                "DownstreamStatus",
                "http.response.status_code",
                "EdgeResponseStatus",
                "httpRequest.status",
                "elb_status_code",
            ],
            Self::Bytes => &[
                "bytes",
                "body_bytes_sent",
                "bytes_sent",
                "size",
                "DownstreamContentSize",
                "response_size",
                "http.response.body.bytes",
                "http.response.bytes",
                "EdgeResponseBytes",
                "httpRequest.responseSize",
                "sent_bytes",
            ],
            Self::Referer => &[
                "referer",
                "http_referer",
                "request.headers.Referer",
                "request_Referer",
                "http.request.referrer",
                "ClientRequestReferer",
                "httpRequest.referer",
            ],
            Self::Agent => &[
                "agent",
                "user_agent",
                "http_user_agent",
                "request.headers.User-Agent",
                "request_User-Agent",
                "user_agent.original",
                "ClientRequestUserAgent",
                "httpRequest.userAgent",
            ],
            Self::Duration => &[
                "request_time",
                "Duration",
                "event.duration",
                "duration",
                "httpRequest.latency",
                "reqtime",
                "time-taken",
                "time_taken",
            ],
            Self::Named(name) => return vec![name],
        };
        names.to_vec()
    }
}
