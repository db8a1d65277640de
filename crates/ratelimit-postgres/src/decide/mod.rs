//! How slices are decided.

pub(crate) mod certain_fit;
pub(crate) mod fast_path;
pub(crate) mod queue;
