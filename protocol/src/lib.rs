//! What the bytes of GridFTP mean.
//!
//! Bytes in, values out, and the other way round: commands, replies, addresses, MODE E blocks, ranges,
//! markers, listings, driver-stack strings, and the state that a session negotiates. Server and client
//! use the same code. It has no sockets, files, clocks or threads: the caller passes the time in.

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
