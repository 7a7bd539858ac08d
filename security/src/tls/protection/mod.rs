//! Protects records with the keys of a handshake.
//!
//! Sealing is out of place, so that plaintext is read once and records are written once. Opening is out of place or in
//! place.

mod error;
mod keys;
mod open;
mod seal;

pub(super) use error::RecordError;
pub(super) use keys::MAX_OVERHEAD;
pub(super) use open::Opener;
pub(super) use seal::Sealer;

/// Types of records (RFC 8446 5.1).
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;
