//! What a store reports after it has listed some of its meters.

/// How far a store got when it listed its meters, for a tool that shows them to an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeterScan {
    /// How many names the store looked at, including those of other namespaces and other programs.
    pub looked_at: usize,
    /// How many of them name a meter by a digest, because namespace and key are long: the key cannot be read back, and it
    /// is not known which namespace they belong to.
    pub digests: usize,
    /// Whether there are names that it did not look at.
    pub more: bool,
}
