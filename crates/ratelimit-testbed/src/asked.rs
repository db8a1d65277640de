//! The targets of the suite that the command line names, so that only the servers they need are started.

/// The targets that the command line of a `tests/conformance.rs` names.
#[derive(Clone, Debug)]
pub struct Asked {
    named: Vec<String>,
}

impl Asked {
    /// The targets among `known` that this program's arguments name.
    pub fn from_args(known: &[&str]) -> Self {
        Self { named: std::env::args().skip(1).filter(|name| known.contains(&name.as_str())).collect() }
    }

    /// Whether the target should run: it is named, or no target is.
    pub fn has(&self, name: &str) -> bool {
        self.named.is_empty() || self.names(name)
    }

    /// Whether the target is named.
    pub fn names(&self, name: &str) -> bool {
        self.named.iter().any(|named| named == name)
    }
}
