//! Sessions of a server in this process, driven over real sockets.

mod checksums;
mod client;
mod control;
mod crowds;
mod group_limits;
mod gsi;
mod gsi_data;
mod listings;
mod login;
mod metrics;
mod names;
mod pki;
mod ports;
#[cfg(feature = "rdma")]
mod rdma;
#[cfg(feature = "rdma")]
mod rdma_lies;
mod served;
mod standard;
mod tls;
mod transfers;
mod trust;
mod uploads;
