//! Data ports: where data channels go, and what they run over.
//!
//! ```text
//! port               DataPort: PASV, PORT and their variants
//!   ├─ addresses     local and advertised addresses
//!   ├─ peers         the addresses that the server may connect to
//!   ├─ channel_security   GSI and TLS on data channels
//!   └─ stacks        the driver stack, and what a client may change in it
//! ```

mod addresses;
mod channel_security;
mod peers;
mod port;
mod stacks;

pub(super) use port::{DataPort, DataPortCommand};
pub(crate) use stacks::GSI;
