//! A GSI client that sends tokens one by one, unchanged or modified by a test.
//!
//! `gridhaul-security` makes the tokens. The clients of the table show that it implements the protocol
//! correctly; tests with this client check how a server handles tokens that are late, truncated,
//! repeated, or never sent.

mod control;
mod encoding;
mod exchange;
mod identity;
mod login;

pub use control::GsiControl;
pub use encoding::base64;
pub(super) use encoding::read_record;
pub use exchange::Exchange;
pub use identity::{End, Identity};
