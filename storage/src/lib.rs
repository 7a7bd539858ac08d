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
    Checksum, ChecksumAlgorithm, ChecksumKey, ChecksumMemory, ChecksumPieces, ChecksumSource,
    ChecksumWatch, Checksums, FoundChecksum, PartialChecksum, ShortKey, UnknownChecksumAlgorithm,
    Writing,
};
pub use entries::Entries;
pub use error::{Rule, StorageError, StorageErrorKind};
pub use metadata::{Access, Account, FileKind, Metadata};
pub use posix::{PosixOptions, PosixStorage, Rights, group_number};
pub use store::{
    CHECKSUM_ATTRIBUTE, CHECKSUM_ATTRIBUTE_BYTES, DirectoryEntry, DirectoryRun, DirectoryStream,
    OpenedFile, Storage, StoredFile, WriteMode,
};
