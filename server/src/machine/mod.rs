//! The machine that the server runs on: its name, its memory, its network cards, the settings of its kernel, how many descriptors the process may
//! have, and the processor time of processes.

mod cards;
mod clock;
mod descriptors;
mod kernel_setting;
mod memory;
mod process_facts;
mod processor_time;
mod usage;

pub(crate) use cards::{NetworkCard, network_cards};
pub(crate) use clock::{ClockState, clock_state};
pub(crate) use descriptors::raise_descriptor_limit;
pub(crate) use kernel_setting::{kernel_setting, largest_window};
pub(crate) use memory::{buffer_bytes, memory_limit, ring_bytes};
pub(crate) use process_facts::{ProcessFacts, process_facts};
pub(crate) use usage::{Usage, usage, usage_of_children};

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
