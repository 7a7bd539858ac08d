//! Measurements: the modules of the programs `bench`, `bench-rdma`, `bench-rdma-files`, `bench-devices`, `bench-clients`, `bench-crowds`, `bench-nodes` and `soak`.

pub mod awake;
pub mod clients;
pub mod cpus;
pub mod crowd;
pub mod devices;
pub mod files;
pub mod hostile;
pub mod machine;

pub mod measured;
pub mod nodes;
pub mod ports;
pub mod pump;
pub mod rdma;
pub mod rdma_files;
pub mod record;
pub mod reserve;
pub mod row;
pub mod rows;
pub mod sample;
pub mod session;
pub mod small_files;
pub mod soak;
pub mod table;
pub mod target;
pub mod testbed;
pub mod verdict;
pub mod wan;
