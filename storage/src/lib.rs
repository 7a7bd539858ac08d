//! Files beneath a root.
//!
//! [`Storage`] is what a session sees of a file system: paths that start at the session's root, never
//! at the machine's. [`PosixStorage`] is the one implementation: every path is resolved by the kernel
//! (`openat2` with `RESOLVE_IN_ROOT`) on a held descriptor of the root, never by string checks.
//!
//! This crate knows no protocol and no network. It blocks, and expects to be called on threads that
//! may block.

mod checksum;
mod entries;
mod error;
mod metadata;
mod posix;
mod store;

pub use checksum::{
    Checksum, ChecksumAlgorithm, ChecksumMemory, ChecksumPieces, ChecksumWatch, Checksums,
    PartialChecksum, UnknownChecksumAlgorithm, Writing,
};
pub use entries::Entries;
pub use error::{StorageError, StorageErrorKind};
pub use metadata::{Access, Account, FileKind, Metadata};
pub use posix::{PosixOptions, PosixStorage, group_number};
pub use store::{DirectoryEntry, DirectoryRun, DirectoryStream, OpenedFile, Storage, WriteMode};
