//! Groups of system calls that several processes make, each with its reason.
//!
//! The groups contain the calls that the C libraries of EL 9 and 10, Debian 12 and 13 and Ubuntu 24.04 use for the same
//! work, and calls that x86-64 has and newer architectures do not (`open` beside `openat`).

mod channels;
mod descriptors;
mod files;
mod process;
mod sockets;

pub(crate) use channels::{PACING, RDMA};
pub(crate) use descriptors::{DESCRIPTORS, EVENTS};
pub(crate) use files::{ATTRIBUTES, CHANGING, MOVING, READING};
pub(crate) use process::{LIBRARIES, MEMORY, NEW_THREADS, QUERIES, THREADS};
pub(crate) use sockets::{
    CONNECTIONS, LISTENING, MESSAGES, SENDING, SENDING_TO_PEERS, SENDING_WITHOUT_CONNECTING,
};
