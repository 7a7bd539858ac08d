//! The control channel: command lines in, replies out.
//!
//! ```text
//! Control (channel)   lines and replies, the queue of commands that wait
//!   ├─ Request        one line, decoded
//!   ├─ tokens         commands and replies in the tokens of a GSI context
//!   └─ Stream         TCP, TLS or a pair of pipes
//!        └─ tls       TLS whose keys can move to another process
//! ```

mod channel;
mod request;
mod stream;
mod tls;
mod tokens;

pub(super) use channel::{Control, Parts};
pub(super) use request::{Fault, Request};
pub(crate) use stream::Stream;
pub(super) use tls::TlsStream;
