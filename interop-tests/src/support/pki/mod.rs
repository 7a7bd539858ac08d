//! A small public key infrastructure for the tests: authorities, a host, users, and credentials that servers must refuse.
//!
//! The programs that sites use make everything: `openssl`, `grid-proxy-init`,
//! `voms-proxy-fake`. It takes some seconds, so the test programs of a run share it ([`Pki::shared`]).

mod authority;
mod bad;
mod cache;
mod certificates;
mod command;
mod files;
mod names;
mod users;

pub use bad::{BadCredential, BadKind};
pub use certificates::Pki;
pub use command::PkiError;
pub use names::HOST;
pub use users::{Accounts, PASSWORD, PASSWORD_USER, UserCredential, UserKind};
