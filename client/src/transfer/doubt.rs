//! Files of a failed pipeline whose names may have the content of other files at the destination.
//!
//! Blocks of MODE E do not name the file that they belong to. When one server refuses a file, the other one goes on with it, and stores the
//! data of the file behind it under its name. A file without a result is therefore never taken for the right one because of its size: it is
//! copied again. What happens to the one that is there depends on what the destination has said about its `STOR`.

/// What the destination may have under the name of a file without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It has confirmed the file. What was there before is gone, and the new content may be that of another file.
    Stored,
    /// It has neither confirmed the file, nor refused it before it began: the session has ended before. There may be the content of
    /// another file, or still the old file, because the `STOR` has only waited for data.
    Unknown,
}
