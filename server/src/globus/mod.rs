//! globus-gridftp-server: its configuration files and its command line, in terms of this server.
//!
//! ```text
//! read   arguments          files and variables, the command line
//!   └──┬───┘
//!    given                  values of options with their places
//!      │  translate         by the table of all options
//!  translation              settings, and remarks on what differs
//!   ┌──┴────┐
//! import   stand_in         a configuration file; a server
//! ```
//!
//! The model is version 13.24 of the Grid Community Toolkit: `globus-gridftp-server(8)`, and its source where the manual leaves
//! something open.

mod arguments;
mod counterpart;
mod detach;
mod given;
mod import;
mod option;
mod read;
mod stand_in;
mod table;
mod translate;
mod translation;

pub use counterpart::counterpart;
pub use given::{NotAValue, Place};
pub use import::{ImportError, Imported, import};
pub use read::{LineError, ReadError};
pub use stand_in::serve;
pub use translate::TranslateError;
