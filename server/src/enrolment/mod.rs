//! Certificates for data nodes of sites without an authority: `nodes invite` on the control server, `node --enroll` on the
//! node.
//!
//! ```text
//!   control server                                   node
//!   invite          makes tokens, and waits          enrol        has a token and no certificate
//!     ├─ invitations    tokens that are not used       │
//!     └─ listener  <───────── TLS, messages ───────────┘
//!   places          directories and files that no other account can change
//! ```
//!
//! The node knows the control server by the fingerprint of its authority in the token, and the control server the node by the
//! secret. The key of the node stays there.

mod enrol;
mod invitations;
mod invite;
mod listener;
mod messages;
mod places;

pub use enrol::EnrolError;
pub(crate) use enrol::enrol;
pub use invite::InviteError;
pub(crate) use invite::invite;
pub use places::PlaceError;

/// The file of the authority in its directory. Only `nodes invite` reads it.
const AUTHORITY_FILE: &str = "authority.pem";
