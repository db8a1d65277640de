//! Why a request cannot be counted.

use http::HeaderName;

/// Why a request has no key: a part that the key is made of is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The client did not send it; the header that it is in, if it is in one.
    Client(Option<HeaderName>),
    /// The client sent this header several times, so it is not known which one the program uses.
    Several(HeaderName),
    /// The program did not provide it; the message says what is missing.
    Program(&'static str),
}
