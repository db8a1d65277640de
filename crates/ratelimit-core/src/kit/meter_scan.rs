//! What a store reports after it has listed some of its meters.

/// The progress of a store that lists its meters, for a tool that shows them to an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeterScan {
    /// How many names the store has read, including those of other namespaces and other programs.
    pub looked_at: usize,
    /// How many of these names contain a digest instead of namespace and key, because these are long. Key and namespace of
    /// such a meter cannot be read back.
    pub digests: usize,
    /// Whether there are names that the store has not read.
    pub more: bool,
}
