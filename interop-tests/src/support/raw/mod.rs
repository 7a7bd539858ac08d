//! A small GridFTP client with control over every byte.
//!
//! The other clients of this crate are complete programs, which choose the commands themselves and hide the
//! replies. This one sends the exact bytes of a test, also invalid ones, and returns replies and
//! blocks as they arrived. It has its own encoders and shares no code with the server, so that a
//! misreading of the protocol cannot be on both sides. The exception are GSI tokens, which
//! `gridhaul-security` makes.
//!
//! All calls block and have a deadline: a server that sends nothing causes an error of
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
pub use data::{DataListener, TIMEOUT, connect_data, connect_from, reset};
pub use gsi::{End, Exchange, GsiControl, Identity, base64};
pub use reply::{Dialogue, Reply};
pub use tls::TlsControl;
pub use transfer::{
    Received, get_blocks, get_stream, listing, put_blocks, put_stream, receive_blocks, send_blocks,
    stream_transfer,
};
