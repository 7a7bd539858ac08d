//! Kernel TLS: after the handshake the kernel gets the keys of a channel, and the process sends and receives plaintext.
//!
//! That saves copies: a file goes from the page cache directly into records, and records are opened into the caller's
//! memory. Whether it saves CPU time depends on the kernel's ciphers, so both are measured once per process. Only AES-GCM is
//! handed over. TLS 1.3 may change keys within a connection, which the kernel supports since Linux 6.14; an older kernel gets
//! such channels only with `ktls=on`.

mod loopback;
mod measure;
mod mode;
mod offload;
mod sending;
pub(crate) mod socket;
mod support;

pub(crate) use self::mode::{KtlsMode, OPTION};
pub(crate) use self::offload::Offload;
pub(crate) use self::sending::KernelSender;
pub(crate) use self::support::kernel_support;
