//! Why the provider cannot be used.

use std::io;
use std::net::IpAddr;

use super::bindings::LibraryError;
use super::connection_manager::ConnectionError;
use super::inspect::no_kernel;

/// Why verbs cannot be used, and how to fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerbsError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{}", no_kernel(.0))]
    NoKernel(io::Error),
    #[error("there is no RDMA device {0}; there are: {1}")]
    NoDevice(String, String),
    #[error("no RDMA device has the address {address}: {there}")]
    NoAddress { address: IpAddr, there: String },
    #[error(
        "port {number} of {device} is {state}, and not ACTIVE: is the link up, and for InfiniBand, does a subnet \
         manager run?"
    )]
    Inactive {
        device: String,
        number: u8,
        state: String,
    },
    #[error("port {number} of {device} has no GID {index} for RoCE v2; it has {there}")]
    NoGid {
        device: String,
        number: u8,
        index: u8,
        there: String,
    },
    #[error("port {number} of {device} is in no partition{wanted}; its P_Keys are {there}")]
    NoPartition {
        device: String,
        number: u8,
        wanted: String,
        there: String,
    },
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("{what} of {device}: {error}")]
    Device {
        what: &'static str,
        device: String,
        error: io::Error,
    },
}
