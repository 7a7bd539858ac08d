//! Data channels: the ports they come from, connection setup with handshakes, and reading blocks.

mod block_reader;
mod data_channels;
mod establish;
mod handshakes;
mod open_ports;
mod semaphore;

pub(crate) use block_reader::{NextHeader, READ_AHEAD_BYTES};
pub(crate) use data_channels::{DataChannel, DataChannels, DataPort, Role};
pub(crate) use establish::{accept, receiving_channel, sending_channel};
pub(crate) use handshakes::Handshakes;
pub(crate) use open_ports::OpenPorts;
pub(crate) use semaphore::Permit;
