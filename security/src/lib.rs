//! Who is at the other end: GSI contexts, certificates and proxies, trust, VOMS, grid-mapfiles.
//!
//! A [`Context`](context::Context) takes tokens and gives tokens; what carries them (`ADAT`, `ENC`, a
//! data connection) is its caller's business. Nothing here opens a socket, and only [`files`] opens
//! files.

mod asn1;
pub mod certificate;
pub mod context;
pub mod credential;
pub mod delegation;
pub mod files;
pub mod gridmap;
pub mod key;
mod malformed;
pub mod name;
mod one_line;
pub mod proxy;
pub mod secret;
mod signature;
#[cfg(test)]
mod test_pki;
pub mod tls;
pub mod trust;
pub mod voms;
