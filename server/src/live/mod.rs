//! The sessions and transfers of the serving process, as administrators see them.
//!
//! Each session has an entry from its login to its end, and each transfer one while it waits or runs. The data path does not
//! know of them: the bytes of a transfer are read from its own counters when an administrator asks.
//!
//! ```text
//! table          Live: all entries
//!   └─ transfer  the progress of a transfer, and its rate
//!        └─ session   what a session has told in its events
//! ```

mod session;
mod table;
mod transfer;

pub(crate) use table::{Live, SessionEntry, TransferEntry};
pub(crate) use transfer::NewTransfer;
