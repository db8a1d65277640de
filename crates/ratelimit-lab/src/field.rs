//! The fields of a log line, and the names that servers give them.

/// A field of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// When the request was made.
    Time,
    /// The client's address.
    Ip,
    /// The user that was authenticated.
    User,
    /// The method of the request.
    Method,
    /// The target of the request. What follows `?` is not part of it.
    Path,
    /// The status of the response.
    Status,
    /// The bytes of the response.
    Bytes,
    /// The header field `Referer`.
    Referer,
    /// The header field `User-Agent`.
    Agent,
    /// A field of JSON or a column of CSV by its name; a dot leads into an object.
    Named(Box<str>),
}

impl Field {
    /// Reads a name as `--by` takes it.
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

    /// Its names in JSON and CSV, those that count first in front: of nginx, Apache, Caddy, Traefik, Envoy and common habit.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Time => vec![
                "time",
                "timestamp",
                "@timestamp",
                "ts",
                "time_iso8601",
                "msec",
                "StartUTC",
                "start_time",
                "time_local",
                "datetime",
                "date",
            ],
            Self::Ip => vec![
                "ip",
                "client_ip",
                "remote_addr",
                "request.client_ip",
                "request.remote_ip",
                "ClientHost",
                "remote_ip",
                "clientip",
                "client",
                "host",
            ],
            Self::User => vec!["user", "remote_user", "user_id", "ClientUsername", "username"],
            Self::Method => vec!["method", "request_method", "request.method", "RequestMethod"],
            Self::Path => vec!["path", "uri", "request_uri", "request.uri", "RequestPath", "url"],
            Self::Status => vec!["status", "code", "response_code", "DownstreamStatus"],
            Self::Bytes => {
                vec![
                    "bytes",
                    "body_bytes_sent",
                    "bytes_sent",
                    "size",
                    "DownstreamContentSize",
                    "response_size",
                ]
            }
            Self::Referer => vec!["referer", "http_referer", "request.headers.Referer"],
            Self::Agent => vec!["agent", "user_agent", "http_user_agent", "request.headers.User-Agent"],
            Self::Named(name) => vec![name],
        }
    }
}
