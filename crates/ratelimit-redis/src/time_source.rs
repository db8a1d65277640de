//! Whose clock decides.

/// Whose clock decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeSource {
    /// The caller's, that is, the limiter's clock. Synchronise the clocks of the machines that share the server.
    #[default]
    Caller,
    /// The server's, in microseconds; the limiter's clock is not used.
    Server,
}
