//! The machine that the server runs on: its name, its memory, and how many descriptors the process may have.

mod descriptors;
mod memory;

pub(crate) use descriptors::raise_descriptor_limit;
pub(crate) use memory::{buffer_bytes, memory_limit, ring_bytes};

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
