//! Questions about files that the control channel answers.
//!
//! ```text
//! command                the commands
//!   ├─ metadata          SIZE, MDTM, MLST, STAT
//!   ├─ control_listing   MLSC
//!   └─ checksum          CKSM
//! ```

mod checksum;
mod command;
mod control_listing;
mod metadata;

pub(super) use checksum::compute_checksum;
pub(super) use command::QueryCommand;
