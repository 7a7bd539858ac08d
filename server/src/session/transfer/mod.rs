//! Transfers: the commands that move data, and their replies.
//!
//! ```text
//! transfers           Transfers: waits for a free place, runs one transfer, logs it
//!   ├─ completion     the final reply; checksum and time of a stored file
//!   ├─ running        a transfer under way: events, markers, ABOR, NOOP and STAT
//!   │    └─ timers    when markers are due, and when a transfer has stalled
//!   └─ order          the plan for the data node
//!        └─ motion    what a command moves
//! ```

mod completion;
mod motion;
mod order;
mod running;
mod timers;
mod transfers;

pub(super) use motion::Motion;
pub(super) use transfers::{TransferCommand, Transfers};
