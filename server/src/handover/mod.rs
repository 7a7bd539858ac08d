//! The transfer of clients from the front process to the serving process, and back.
//!
//! The front process hands over each client that may log in: the connection, the keys of its protection, and its input after
//! the login ([`Handed`]). The serving process derives no rights from these messages: it asks the login process for the
//! identity of the client, once for each client. `REIN` returns a connection. The front process also reports clients that it has
//! refused, for administrators.
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
