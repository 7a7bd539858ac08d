//! What needs RDMA devices, or a network that can be shaped: each test runs in a guest of its own.

mod faults;
mod hosts;
mod path;
mod sites;
mod third_party;
mod told;
