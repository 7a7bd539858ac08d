//! Tests that need RDMA devices or a shaped network. Each runs in a separate guest.

mod client;
mod containers;
mod disks;
mod examined;
mod faults;
mod foreign;
mod hosts;
mod path;
mod rings;
mod routed;
mod sessions;
mod sites;
mod third_party;
mod told;
