//! Driver stacks over real RDMA devices: the software ones of a guest, and no server around them.

pub mod perftest;
pub mod pump;
pub mod tables;
