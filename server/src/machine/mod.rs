//! The machine that the server runs on: its name, its memory, how many descriptors the process may have, and the processor
//! time of processes.

mod descriptors;
mod memory;
mod processor_time;

pub(crate) use descriptors::raise_descriptor_limit;
pub(crate) use memory::{buffer_bytes, memory_limit, ring_bytes};
pub(crate) use processor_time::processor_time;

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
