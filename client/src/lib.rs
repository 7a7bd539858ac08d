//! A GridFTP client.
//!
//! A [`session::Session`] is a login at a server. [`transfer`] copies a file between a server and this machine, whose files and
//! data channels are those of [`local::LocalMachine`], or between two servers.
//!
//! ```text
//!   listing             the entries of a directory of a server
//!     └──> transfer     a file: two ends, their agreement
//!            ├──> local        this machine: storage, drivers, data channels (gridhaul_transfer)
//!            └──> session      a server: features, settings, data ports
//!                   ├──> login       certificates, passwords
//!                   └──> control     commands, replies, their protection
//!   location            paths and URLs
//! ```
//!
//! Names in replies of a server are not trusted: local files are opened beneath a root that no name leads out of.

pub mod control;
pub mod listing;
pub mod local;
pub mod location;
pub mod login;
#[doc(hidden)]
pub mod program;
pub mod session;
pub mod transfer;
