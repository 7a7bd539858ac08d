//! The wire format of GridFTP.
//!
//! Parsers and encoders for commands, replies, addresses, MODE E blocks, ranges, markers, listings and driver-stack strings, and
//! the state that a session negotiates. Server and client use the same code. The crate has no sockets, files, clocks or
//! threads: the caller passes bytes and the time.
//!
//! ```text
//!   bytes ──> line ──> command ──> negotiated         what a client has set, and which command may come now
//!                └──> reply ──> address, feature, marker
//!   data channels: block (MODE E), facts and listing
//!   shared values: ranges, path, time, stack, excerpt
//! ```
//!
//! # Example
//!
//! ```
//! use gridhaul_protocol::command::Command;
//! use gridhaul_protocol::line::LineDecoder;
//! use gridhaul_protocol::reply::Reply;
//!
//! let mut input = &b"RETR a file\r\nNOSUCH\r\n"[..];
//! let mut lines = LineDecoder::for_commands();
//! let line = lines.decode(&mut input).expect("a complete line")?;
//! let Command::Retr(path) = Command::parse(&line)? else { panic!() };
//! assert_eq!(path.as_bytes(), b"a file");
//!
//! let line = lines.decode(&mut input).expect("a complete line")?;
//! let reply: Reply = Command::parse(&line).expect_err("unknown").reply();
//! assert_eq!(reply.code(), 500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod address;
pub mod block;
pub mod command;
pub mod excerpt;
pub mod facts;
pub mod feature;
pub mod help;
pub mod line;
pub mod listing;
pub mod marker;
pub mod negotiated;
mod number;
pub mod path;
pub mod ranges;
pub mod reply;
pub mod stack;
pub mod time;
