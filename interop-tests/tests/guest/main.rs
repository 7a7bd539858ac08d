//! What needs RDMA devices, or a network that can be shaped: each test runs in a guest of its own.

mod faults;
mod path;
mod sites;
mod third_party;
