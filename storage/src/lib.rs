//! Files beneath a root, and their checksums.
//!
//! [`Storage`] is the interface of sessions and transfers to a file system. Paths start at the session's root, not at the
//! machine's. [`PosixStorage`] implements it: the kernel resolves every path relative to a descriptor of the root (`openat2`
//! with `RESOLVE_IN_ROOT`), without checks of strings. The crate `gridhaul-accounts` implements it with one process for each
//! account.
//!
//! ```text
//! session, transfer
//!    │        └────> Checksums      computed, remembered, stored with files
//!    v                  │
//! Storage <─────────────┘
//!    ├── PosixStorage              this process
//!    └── AccountStorage            gridhaul-accounts: a broker process
//! ```
//!
//! All calls block, so they are made on threads that may block. No protocol and no network is involved.
//!
//! ```
//! use std::path::Path;
//! use std::sync::atomic::AtomicU64;
//!
//! use gridhaul_storage::{
//!     ChecksumAlgorithm, ChecksumWatch, Checksums, PosixOptions, PosixStorage, Storage as _, StoredFile, WriteMode,
//! };
//!
//! let root = std::env::temp_dir().join(format!("gridhaul-{}", std::process::id()));
//! std::fs::create_dir(&root).unwrap();
//! let storage = PosixStorage::open(&root, PosixOptions::default())?;
//!
//! let file = storage.open_write(Path::new("/data"), WriteMode::Truncate)?;
//! rustix::io::write(&file, b"Wikipedia").unwrap();
//! file.close()?;
//!
//! let checksums = Checksums::new(0, 100, None);
//! let (file, stored) = (
//!     storage.open_read(Path::new("/data"))?,
//!     StoredFile { storage: &storage, path: Path::new("/data") },
//! );
//! let done = AtomicU64::new(0);
//! let watch = ChecksumWatch { done: &done, cancelled: &|| false };
//! let found = checksums.of((&file, &stored), ChecksumAlgorithm::Adler32, (0, None), &watch)?;
//! assert_eq!(found.value, "11e60398");
//!
//! // Paths cannot leave the root.
//! assert!(storage.stat(Path::new("/../../etc/passwd")).is_err());
//! # storage.remove_file(Path::new("/data"))?;
//! # std::fs::remove_dir(&root).unwrap();
//! # Ok::<(), gridhaul_storage::StorageError>(())
//! ```

mod checksum;
mod entries;
mod error;
mod metadata;
mod posix;
mod store;
mod upload;

pub use checksum::{
    Checksum, ChecksumAlgorithm, ChecksumKey, ChecksumMemory, ChecksumPieces, ChecksumSource,
    ChecksumWatch, Checksums, FoundChecksum, PartialChecksum, ShortKey, UnknownChecksumAlgorithm,
    Writing,
};
pub use entries::Entries;
pub use error::{Rule, StorageError, StorageErrorKind};
pub use metadata::{Access, Account, FileIdentity, FileKind, Metadata};
pub use posix::{PosixOptions, PosixStorage, Rights, group_number};
pub use store::{
    CHECKSUM_ATTRIBUTE, CHECKSUM_ATTRIBUTE_BYTES, DirectoryEntry, DirectoryRun, DirectoryStream,
    OpenedFile, Storage, StoredFile, UnnamedFile, UploadOpening, WriteMode,
};
pub use upload::{UploadForm, is_unfinished_upload};
