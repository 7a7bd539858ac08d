//! Driver stacks over real RDMA devices: the software ones of a guest, and no server around them.

mod baselines;
mod distance;
mod engine;
mod inline;
mod loopback;
mod many_channels;
pub mod perftest;
mod policer;
mod processor;
pub mod pump;
pub mod registration;
mod runs;
mod sizes;
pub mod tables;
