//! A small GridFTP client that shows every byte.
//!
//! The other clients of this crate are complete programs: they decide what to send and hide what
//! comes back. This one says exactly what a test tells it, however wrong, and returns replies and
//! blocks as they arrived. It has its own encoders and shares no code with the server, so that a
//! misreading of the protocol cannot hide by being on both sides; but for the tokens of GSI, which
//! the server's own library makes.
//!
//! Everything blocks, and everything has a deadline: a server that falls silent makes an error of
//! kind [`TimedOut`](std::io::ErrorKind::TimedOut), never a test that hangs.

mod block;
mod control;
mod data;
mod gsi;
mod reply;
mod tls;
mod transfer;

pub use block::{Block, Incoming, descriptor, end_blocks, read_block, read_channel, write_block};
pub use control::Control;
pub(crate) use control::comma_form;
pub use data::{DataListener, PATIENCE, connect_data, connect_from, reset};
pub use gsi::{End, Exchange, GsiControl, Identity, base64};
pub use reply::{Dialogue, Reply};
pub use tls::TlsControl;
pub use transfer::{
    Received, get_blocks, get_stream, listing, put_blocks, put_stream, receive_blocks, send_blocks,
    stream_transfer,
};
