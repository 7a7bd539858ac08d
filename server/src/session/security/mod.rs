//! The protection of the control channel: `AUTH` and `ADAT`.
//!
//! ```text
//! authentication   AUTH, ADAT: what the client asks for
//!   ├─ exchange    the security exchange of GSI
//!   └─ tls         the TLS handshake
//! attempt          limits, the log and refusals of attempts
//! state            ControlSecurity: what protects the channel now
//! ```

mod attempt;
mod authentication;
mod exchange;
mod state;
mod tls;

pub(super) use attempt::{HANDSHAKE_ABORTED, without_advice};
pub(super) use authentication::SecurityCommand;
pub(super) use state::ControlSecurity;
