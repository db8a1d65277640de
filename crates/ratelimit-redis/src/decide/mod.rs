//! How slices are decided.

pub(crate) mod by_node;
pub(crate) mod calls;
pub(crate) mod give_back;
pub(crate) mod spread;
