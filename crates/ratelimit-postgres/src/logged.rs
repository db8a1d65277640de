//! Whether the table survives a crash of the server.

/// Whether the table survives a crash of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Logged {
    /// It does not. Faster, because nothing is written to the write-ahead log. After a crash, and after a failover to a
    /// standby, all meters start from zero.
    #[default]
    Unlogged,
    /// It does, and it is replicated. Each charge then waits for the disk unless `synchronous_commit` is off.
    Logged,
}
