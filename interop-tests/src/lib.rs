//! gridhaul against programs of other projects.
//!
//! One [table] of cases drives `globus-url-copy`, gfal2, `curl`, `lftp` and Python's `ftplib`
//! against our server and against the real `globus-gridftp-server`. The real one is the oracle: a
//! case that it does not pass says nothing, unless the case itself says why the real server is odd
//! there and what is right. The tests of this crate run the table; `interop-report` prints it.
//!
//! [`Pki`] has the certificates, keys and proxies of users whom both servers know, and of some whom no
//! server must let in. [`Server`] starts either server with the same words, and [`Client`] runs a
//! client program within a time limit. Neither leaves a process behind, whatever becomes of the test.
//! [`raw`] is a client that sends whatever a test says, byte by byte.

mod arena;
pub mod bench;
mod case;
mod client;
pub mod content;
mod group;
pub mod guest;
mod launch;
mod pki;
pub mod raw;
mod relay;
mod report;
mod run;
mod server;
pub mod table;
pub mod url;

pub use arena::{Arena, Context, Role, give_away};
pub use case::{Case, Failure, Observation, Partners, check};
pub use client::{Client, ClientError, Finished};
pub use launch::{Launch, LaunchError, gridhaul_program};
pub use pki::{
    Accounts, BadCredential, BadKind, HOST, PASSWORD, PASSWORD_USER, Pki, PkiError, UserCredential,
    UserKind,
};
pub use relay::Relay;
pub use report::Report;
pub use run::{Outcome, Row, Verdict, run};
pub use server::{Kind, Server};
