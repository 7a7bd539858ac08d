//! A session: one control channel from the greeting to the end.
//!
//! A session never touches a data socket or a file's bytes: it sends plans to a data node
//! ([`gridhaul_transfer::NodeSession`]). One task serves a session. It carries out one command after another, and reads the
//! control channel meanwhile, so that it sees `ABOR`, `STAT` and the end of the connection during a transfer.
//!
//! ```text
//! run            the life of a session: greeting, commands, end
//!   ├─ handover  to the other process, and back
//!   └─ dispatch  passes each command to its part
//!        ├─ group       which part carries out which command
//!        └─ parts       Session: its parts, and REIN
//!             ├─ security    AUTH, ADAT: protection of the control channel
//!             ├─ login       USER, PASS
//!             ├─ data        PASV, PORT, DCSC, SITE SETNETSTACK: the data port
//!             ├─ transfer    RETR, STOR, MLSD ...
//!             ├─ namespace   CWD, MKD, RNFR ...
//!             ├─ query       SIZE, MLST, MLSC, CKSM ...
//!             └─ foreign     SITE commands of other servers
//! call           what a command may use: context, control, user
//! control        lines in, replies out
//! ```

mod audit;
mod call;
mod conduct;
mod context;
mod control;
mod data;
mod dispatch;
mod end;
mod failure;
mod features;
mod files;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod group;
mod handover;
mod initiator;
mod listing;
mod login;
mod namespace;
mod parts;
mod query;
mod replies;
mod run;
mod security;
#[cfg(test)]
mod sent_errors;
mod transfer;
mod unfinished;
mod user;

pub(crate) use control::Stream;
pub(crate) use data::GSI;
pub(crate) use parts::Session;
pub(crate) use user::{LocalUser, home_directory};
