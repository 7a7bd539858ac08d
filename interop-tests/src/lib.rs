//! gridhaul against programs that nobody here wrote.
//!
//! [`Server`] starts our server or the real `globus-gridftp-server` with the same words, and
//! [`Client`] runs a client program within a time limit. Neither leaves a process behind, whatever
//! becomes of the test. [`raw`] is a client that sends whatever a test says, byte by byte.

mod client;
mod group;
pub mod raw;
mod server;
pub mod url;

pub use client::{Client, ClientError, Finished};
pub use server::{Kind, Launch, LaunchError, Server};
