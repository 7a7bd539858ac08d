//! Measurements of a server: what the programs `bench` and `soak` are made of.

pub mod arena;
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
pub mod registration;
pub mod reserve;
pub mod rows;
pub mod sample;
pub mod scratch;
pub mod session;
pub mod soak;
pub mod table;
pub mod target;
pub mod usage;
pub mod wan;
