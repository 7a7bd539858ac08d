//! `gridhaul-server node`: a data node, which serves data channels for control servers on other machines.
//!
//! ```text
//! start        from the command line to the last connection
//!   ├─ accept        connections within limits; handshakes
//!   ├─ connection    what a control server asks for
//!   ├─ measure       the traffic of network cards
//!   ├─ expiry        the end of the certificate of an enrolled node
//!   └─ security      the certificate, the trusted authorities, the control servers
//! ```
//!
//! There is one process, and with root's rights at the start a monitor with brokers for the accounts of users. Control servers
//! have logged users in, and name the account of each session, and a node accepts that: so only hosts with a certificate that is
//! listed are served.

mod accept;
mod connection;
mod error;
mod expiry;
mod measure;
mod security;
mod start;

pub use error::NodeError;
pub use start::serve;
