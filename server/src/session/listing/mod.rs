//! Directory listings: from the storage to the lines that a client reads.
//!
//! ```text
//! Listing (stream)    the lines of one listing, in pieces
//!   ├─ Runs           a directory, read and sorted in runs by several threads
//!   ├─ Tree           a whole tree (MLSR)
//!   ├─ lines          the form of lines: MLSD, LIST, NLST ...
//!   │    ├─ entry     facts of one file
//!   │    └─ pattern   wildcards in the last name of a path
//! ```

mod entry;
mod lines;
mod pattern;
mod runs;
mod source;
mod stream;
mod tree;

pub(super) use entry::{Clock, Kind, append_long, facts, link_target};
pub(super) use lines::{Form, Style};
#[cfg(any(test, fuzzing))]
pub(super) use pattern::Pattern;
pub(super) use source::line_source;
pub(super) use stream::Listing;
