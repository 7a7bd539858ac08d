//! Whole transfers through the data-node interface, over real sockets.

mod checksums;
mod common;
mod copies;
mod handshakes;
mod here;
mod peers;
