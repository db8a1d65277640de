//! How slices are decided.

pub(crate) mod by_node;
pub(crate) mod calls;
pub(crate) mod direct;
pub(crate) mod spread;
