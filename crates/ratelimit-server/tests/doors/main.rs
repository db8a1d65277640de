//! The doors as their clients see them, on a store in memory.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod domains;
mod each_door;
mod grpc;
mod http;
mod openapi;
mod receipts;
mod redis;
mod reload;
mod same_decisions;
mod tls;
mod worked_examples;
