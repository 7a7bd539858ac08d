//! Tests that need RDMA devices or a shaped network. Each runs in a separate guest.

mod client;
mod faults;
mod hosts;
mod path;
mod sites;
mod third_party;
mod told;
