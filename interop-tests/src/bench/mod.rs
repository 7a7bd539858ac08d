//! Measurements of a server: what the programs `bench` and `soak` are made of.

pub mod awake;
pub mod cpus;
pub mod crowd;
pub mod devices;
pub mod files;
pub mod hostile;
pub mod machine;
pub mod many;
pub mod measured;
pub mod ports;
pub mod pump;
pub mod rdma;
pub mod record;
pub mod reserve;
pub mod row;
pub mod rows;
pub mod sample;
pub mod session;
pub mod soak;
pub mod table;
pub mod target;
pub mod testbed;
pub mod verdict;
pub mod wan;
