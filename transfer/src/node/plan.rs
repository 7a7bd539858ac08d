//! The complete description of a transfer.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{ChecksumAlgorithm, Storage, StorageError};

use super::consent::Consent;
use super::share::{Companions, Role, Share};
use crate::bandwidth::BandwidthLimit;

/// One transfer. It is complete: the node needs no other state of the session.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What to transfer.
    pub task: Task,
    /// Stream mode or MODE E.
    pub mode: TransferMode,
    /// Whether line ends are converted (`TYPE A`); in stream mode only.
    pub representation: Representation,
    /// MODE E, sending: connections to each stripe, 1 to 64.
    pub parallelism: u8,
    /// MODE E, sending: how a file is divided among stripes.
    pub layout: StripeLayout,
    /// How files are read and written.
    pub handling: Handling,
    /// The stripes of this node, if other nodes serve further ones; files in MODE E only.
    pub share: Option<Share>,
}

impl Plan {
    /// Whether other nodes serve stripes of the transfer as well.
    pub(crate) fn is_divided(&self) -> bool {
        self.share.as_ref().is_some_and(|share| !share.is_whole())
    }

    /// Whether the node receives into a file that another one has opened, and will complete.
    pub(crate) fn is_member(&self) -> bool {
        let role = self.share.as_ref().map(|share| &share.role);
        matches!(role, Some(Role::Member))
    }

    /// The other nodes, if this one opens and completes the file for them.
    pub(crate) fn companions(&self) -> Option<&Arc<dyn Companions>> {
        match &self.share.as_ref()?.role {
            Role::Lead(companions) => Some(companions),
            Role::Member => None,
        }
    }
}

/// How a transfer reads or writes its file, as configured by the administrator and the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handling {
    /// When a received file counts as stored.
    pub sync: SyncPolicy,
    /// Received bytes are written in the order of the file, for storage that requires it (`ordered=1`).
    pub ordered: bool,
    /// Holes are preserved: received zeros are not written, and holes are sent as zeros without reading them.
    pub sparse: bool,
    /// Checksums to compute while the file arrives.
    pub checksums: Vec<ChecksumAlgorithm>,
    /// Also compute those that clients of the node have recently requested for files just stored.
    pub requested_checksums: bool,
    /// The name of a received file until it is complete.
    pub upload: UploadName,
    /// The limits that the transfer shares with others.
    pub bandwidth: Vec<Arc<BandwidthLimit>>,
    /// What a received file must be before it is complete. Not with [`UploadName::Final`]: there the session checks it after the
    /// transfer.
    pub demands: Demands,
    /// A file under a temporary name that fails because there is no room left is removed: no restart would continue it, and others need
    /// the room. Only of a client, on the node of its own process.
    pub frees_room: bool,
    /// The offset of the transfer that a received file or part ends at, at the latest: what a peer sends behind it is not written, and
    /// fails the transfer with [`crate::PeerError::Excess`]. Only of a client, on the node of its own process.
    pub limit: Option<u64>,
}

/// The name of a received file until it is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UploadName {
    /// Its final name.
    #[default]
    Final,
    /// A temporary name beside it ([`gridhaul_storage::UploadForm`]).
    Temporary,
    /// None, if there is no file at its name and nothing of the plan needs one; else as [`Self::Temporary`]. If a file appears there
    /// meanwhile, the transfer fails with `EEXIST` and changes nothing. A transfer that fails leaves nothing to continue. Only of a client,
    /// on the node of its own process.
    Unnamed,
}

/// What a peer, or the owner of the session, demands of a stored file besides its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
    /// The checksums that it must have, in lower-case hexadecimal.
    pub checksums: Vec<(ChecksumAlgorithm, String)>,
    /// The modification time that it gets.
    pub modified: Option<SystemTime>,
    /// The session is asked before the file is complete, when it is all that is demanded otherwise.
    pub consent: Option<Arc<Consent>>,
}

/// How far a received file must be on its way to disk before the client gets 226.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The kernel decides when to write; a crash of the machine may lose the file.
    #[default]
    None,
    /// Write-back of the whole file has begun, and an I/O error up to the close of the file fails the
    /// transfer.
    Close,
    /// The data is on disk (`fdatasync`).
    Data,
}

/// What a transfer moves.
///
/// Offsets on the wire, in `restart` and in markers count from the start of the part: `file offset =
/// part offset + wire offset`.
#[derive(Debug, Clone)]
pub enum Task {
    /// `RETR`, `ERET P`.
    SendFile {
        /// The file.
        path: PathBuf,
        /// Where the part starts, in bytes.
        offset: u64,
        /// The length of the part at most; `None` is to the end of the file.
        length: Option<u64>,
        /// What the peer has already (`REST`).
        restart: RangeSet,
    },
    /// `LIST`, `NLST`, `MLSD`, `MLSR`: lines that the session makes, pulled while they are sent.
    SendLines(LineSource),
    /// `STOR`, `ESTO A`, `APPE`.
    ReceiveFile {
        /// The file.
        path: PathBuf,
        /// Where the part goes.
        placement: Placement,
        /// What arrived earlier (`REST`).
        restart: RangeSet,
        /// The number of bytes that the peer announced, for the transfer or for the file (`ALLO`).
        promised: Option<u64>,
    },
    /// Bytes that go to no file, in stream mode. Only of a client, on the node of its own process.
    ReceiveBytes(ByteSink),
}

/// Takes the bytes of a stream, in their order. Runs on the node's threads and may block.
#[derive(Clone)]
pub struct ByteSink {
    /// Takes the next bytes.
    pub take: Arc<TakeBytes>,
}

/// Takes bytes.
pub type TakeBytes = dyn Fn(&[u8]) -> Result<(), StorageError> + Send + Sync;

impl fmt::Debug for ByteSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteSink").finish_non_exhaustive()
    }
}

/// Where received bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// To the start of the file, which is truncated first unless the transfer is a restart.
    Replace,
    /// To this offset, in bytes; the rest of the file stays (`ESTO A`).
    At(u64),
    /// To the end (`APPE`).
    Append,
}

/// Yields the next piece of text to send (whole lines, each ended by CRLF, at most some kilobytes), or
/// `None` at the end. Runs on the node's threads and may block on storage.
#[derive(Clone)]
pub struct LineSource {
    /// Makes the iterator, once, when the transfer starts.
    pub open: Arc<OpenLines>,
}

/// Opens the source of a listing.
pub type OpenLines = dyn Fn(&dyn Storage) -> Result<LineIterator, StorageError> + Send + Sync;

/// The pieces of a listing, in order.
pub type LineIterator = Box<dyn Iterator<Item = Result<Vec<u8>, StorageError>> + Send>;

impl fmt::Debug for LineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineSource").finish_non_exhaustive()
    }
}
