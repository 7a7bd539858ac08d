//! How clients pass from the front process to the serving process, and back.
//!
//! The front process hands over each client that may log in: the connection, the keys of its protection, and what the
//! client has sent beyond its login ([`Handed`]). The serving process does not trust the front process with anything that
//! gives rights: it asks the login process who the client is, once for each client. `REIN` gives a connection back.
//!
//! ```text
//! front process                                serving process
//!   Link ── Outbox ──── SEQPACKET socket ────▶ Serving ──▶ Guest, for each session
//!   follow ◀─────────────────────────────────── Outbox ◀── Front, Guest
//! ```

mod guests;
mod link;
mod messages;
mod outbox;

pub(crate) use guests::{Front, Guest, Serving};
pub(crate) use link::{Kept, Link};
pub(crate) use messages::{Handed, HandedProof, HandedProtection, ToFront};
pub(crate) use outbox::{Arrived, follow};
