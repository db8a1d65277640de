//! Histories by hand.
