//! The callout: a program or service of the site that is asked about every login with a certificate (`authz-callout`).
//!
//! The login process cannot start programs or make connections. A helper process, `gh-callout`, does that
//! ([`process`]). It was forked before the server opened anything, runs as the server's account, and has no descriptors except
//! standard ones and its sockets to the login process ([`client`]). Up to [`AT_A_TIME`] questions are under way, each with a time
//! limit; questions beyond a queue are refused at once, so that a callout that hangs leaves threads for other logins.
//!
//! The question and the answer are one JSON object each: [`question`]. Everything but a complete and valid permission refuses
//! the client.

mod client;
mod exchange;
mod process;
mod question;

pub(crate) use client::{CalloutClient, MOST_QUESTIONS};
pub(crate) use process::CalloutProcess;
pub use process::CalloutProcessError;
pub(crate) use question::{CalloutError, Claim, Permission};

/// The number of questions under way at a time.
const AT_A_TIME: usize = 16;
