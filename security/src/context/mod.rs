//! GSI security contexts: TLS, followed by a delegation flag and the delegation messages.
//!
//! A token is a sequence of whole TLS records, without further framing. `<-` marks tokens of the initiator:
//!
//! | token | TLS 1.3 | TLS 1.2 |
//! |---|---|---|
//! | `<-` | ClientHello | ClientHello |
//! | `->` | ServerHello to Finished | ServerHello to ServerHelloDone |
//! | `<-` | Certificate to Finished | Certificate to Finished |
//! | `->` | one NUL byte | Finished |
//! | `<-` | the flag: `D` delegates, `0` does not | the same |
//! | `->` | after `D`: a certification request | the same |
//! | `<-` | the signed proxy | the same |
//!
//! A HelloRetryRequest adds two tokens in front. Observed from globus-gssapi-gsi 14.20.

mod error;
mod established;
mod handshake;
mod integrity;
#[cfg(test)]
mod tests;
mod token;

pub use error::ContextError;
pub use established::{Established, MessageKeys, MessageProtection};
pub use handshake::{Context, Step};
pub use token::MAX_TOKEN;
