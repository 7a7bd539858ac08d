//! The server as a service: what a service manager such as systemd passes to it and hears from it, and how a new version of the
//! program takes over.
//!
//! ```text
//! environment   the variables and sockets that the program was started with
//! notify        messages to the service manager
//! launcher      the process that starts a new version; the serving process's connection to it
//!   ├─ program    which program it starts, and how
//!   ├─ trial      the new version examines the configuration
//!   ├─ successor  the new version, from its start until it serves
//!   └─ wait       bounded waiting
//! ```
//!
//! The server cannot execute a program: its processes are confined, and have given up root. So a process with the rights of
//! the start waits for the order to do it. The program and its arguments are those of the start; an order has no content.

mod environment;
mod launcher;
mod notify;
mod program;
mod successor;
mod trial;
mod wait;

pub use environment::EnvironmentError;
pub(crate) use environment::{BOUND, CONTROL, Environment, INETD, Passed};
pub(crate) use launcher::{Launcher, Upgraded};
pub(crate) use notify::Notifier;
