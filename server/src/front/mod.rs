//! The front process: it listens, and talks to clients until they have logged in.
//!
//! What strangers send is parsed in a process that has no files, no accounts, no data of other sessions, and no way to
//! make a connection. It asks the login process, as [`crate::login`] describes, and hands each client that may log in
//! over to the process that serves ([`handover`]): the connection, the keys of its protection, and what the client has
//! sent beyond its login. The serving process believes it nothing that gives rights: it asks the login process who the
//! client is, once for each client. So a stranger who takes the front process over can act for those clients who log
//! in from then on, and for none that is served already.
//!
//! `REIN` gives a connection back. A server inside another program, and one that sshd started, have no front process.

mod counts;
mod handover;
mod link;
mod process;
mod serving;

pub(crate) use counts::FrontCounts;
pub(crate) use handover::{Handed, HandedProof, HandedProtection};
pub(crate) use link::{Kept, Link};
pub(crate) use process::FrontProcess;
pub use process::FrontProcessError;
pub(crate) use serving::{Front, Guest, Serving};
