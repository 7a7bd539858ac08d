//! Authentication: GSI contexts, certificates and proxies, trust, VOMS, grid-mapfiles.
//!
//! A [`Context`](context::Context) processes tokens and returns tokens. Its caller transports them (`ADAT`, `ENC`, a data
//! connection). No module opens a socket, and only [`files`] opens files.
//!
//! ```text
//! context                     GSI handshake, delegation, protected messages
//!  ├── tls                    TLS without I/O
//!  ├── delegation             certification requests, signing proxies
//!  └── trust                  validation of chains
//!       └── certificate, proxy, name, credential, key
//! node_authority              certificates of data nodes, for sites without any
//! host_name                   whether a certificate is that of a host
//! voms, gridmap, bans         attributes and accounts of an identity, and who is refused
//! files                       loads credentials, trust directories, maps; reloads them when they change
//! ```
//!
//! The server's side of a login:
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use gridhaul_security::context::{Context, Step};
//! use gridhaul_security::delegation::KeyPool;
//! use gridhaul_security::files::{TrustDirectory, read_credential};
//! use gridhaul_security::tls::TlsSettings;
//!
//! # fn receive() -> Vec<u8> { Vec::new() }
//! # fn send(_: &[u8]) {}
//! let host = read_credential(Path::new("hostcert.pem"), Path::new("hostkey.pem"))?;
//! let trust = TrustDirectory::open(Path::new("/etc/grid-security/certificates"))?;
//! let settings = TlsSettings::new(Arc::new(host), trust.current());
//! let keys = Arc::new(KeyPool::start(4)?);
//!
//! let mut context = Context::acceptor(&settings, keys)?;
//! let mut alert = Vec::new();
//! loop {
//!     match context.step(&receive(), &mut alert)? {
//!         Step::Continue(token) => send(&token),
//!         Step::Done(token) => break send(&token),
//!     }
//! }
//! if let Some(peer) = context.peer() {
//!     println!("{} has logged in", peer.identity);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod asn1;
pub mod bans;
pub mod certificate;
pub mod context;
pub mod credential;
pub mod delegation;
mod encode;
mod encrypted_key;
pub mod files;
pub mod gridmap;
pub mod host_name;
pub mod key;
mod malformed;
pub mod name;
pub mod node_authority;
mod one_line;
pub mod proxy;
pub mod secret;
mod signature;
#[cfg(test)]
mod test_pki;
pub mod tls;
pub mod trust;
pub mod voms;
