//! HTTP/1.1 for a few trusted readers: scrapers and administrators.
//!
//! hyper speaks the protocol. This module bounds what a client can take: connections at a time, bytes of a head and of a
//! body, and the time for each. It is the same for every site.
//!
//! ```text
//! connections   accepts
//!   ├─ room     the places, and who makes room when there are too many connections
//!   ├─ patience gives up on clients that do not read
//!   ├─ paced    answers that are expensive to make
//!   └─ answers  the responses
//! ```

mod answers;
mod connections;
mod paced;
mod patience;
mod room;

pub(crate) use answers::{Answer, Request, answer, body, json, refusal, text};
pub(crate) use connections::{Limits, Listener, Peer, Site, serve};
pub(crate) use paced::Paced;
pub(crate) use room::{Caller, Holder, Places, Standing};
