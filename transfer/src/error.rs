//! Why a transfer failed, split by the party at fault.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gridhaul_protocol::block::{BlockError, EodError};
use gridhaul_protocol::ranges::{Overlap, RangeSet};
use gridhaul_stack::{ChannelError, ConnectError};
use gridhaul_storage::StorageError;
use rustix::io::Errno;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The transfer does not fit the state of the session.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The file could not be opened, created or listed; no data was moved.
    #[error("Unable to open file {}: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: StorageError,
    },
    /// The file failed while data moved, or when it was closed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file failed when it was synced or closed, after all bytes had arrived: some of them may be lost, although they were
    /// reported as received. Of a member of a transfer of several nodes ([`crate::Role::Member`]).
    #[error("{0}; received bytes may be lost")]
    Lost(StorageError),
    /// No data connection could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No data connection was opened in time.
    #[error("no data connection was opened within {} seconds", .0.as_secs())]
    NoConnection(Duration),
    /// A data channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The peer violated the rules of MODE E.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The session ended the transfer.
    #[error("{}", match .0 {
        CancelReason::Abort => "the operation was aborted",
        CancelReason::ControlChannelLost => "the control channel was lost",
        CancelReason::Stalled => "the transfer stalled: too few bytes moved for too long",
        CancelReason::Shutdown => "the server is shutting down",
        CancelReason::Administrator => "ended by the administrator",
        CancelReason::Replaced => "another upload of the same file has begun",
    })]
    Cancelled(CancelReason),
    /// The server is out of a resource: threads, memory, descriptors.
    #[error("the server cannot serve the transfer: {0}")]
    Local(String),
}

impl TransferError {
    pub(crate) fn open(path: &Path, error: StorageError) -> Self {
        let path = path.to_owned();
        Self::Open { path, error }
    }

    /// Whether the file system of the file, or the quota of the account, has no room left.
    pub fn is_about_room(&self) -> bool {
        match self {
            Self::Open { error, .. } | Self::Storage(error) | Self::Lost(error) => {
                error.is_about_room()
            }
            Self::Channel(ChannelError::File(error)) => {
                let errno = Errno::from_io_error(error);
                matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
            }
            _ => false,
        }
    }

    /// A defect of the server; the panic message is in the log.
    pub(crate) fn panicked() -> Self {
        Self::Local("a worker thread panicked".to_owned())
    }
}

/// Why a session ends a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The client sent `ABOR`.
    Abort,
    /// The control channel was lost.
    ControlChannelLost,
    /// Too few bytes moved for too long.
    Stalled,
    /// The server shuts down.
    Shutdown,
    /// An administrator of the server ended it.
    Administrator,
    /// A later upload of the same file has taken its temporary name.
    Replaced,
}

/// Why a transfer does not fit the commands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// The client has requested neither listening nor connecting.
    #[error("no data port: send PASV or PORT (or EPSV, EPRT, SPAS, SPOR) first")]
    NoDataPort,
    /// GFD.20 3.4: in MODE E the sender of the data connects.
    #[error("in MODE E the sender connects: send PORT or SPOR before RETR")]
    SenderMustConnect,
    /// GFD.20 3.4: in MODE E the receiver of the data listens.
    #[error("in MODE E the receiver listens: send PASV or SPAS before STOR")]
    ReceiverMustListen,
    /// A stream resumes at one offset: only the bytes before it can be present already.
    #[error(
        "stream mode cannot restart with more than one range, or one that does not begin at 0: use MODE E"
    )]
    StreamRestart,
    /// RFC 1123 4.1.3.4: the file cannot be positioned at the restart. The end of the file is a valid position.
    #[error("the restart at byte {offset} is behind the end of the file, which has {size} bytes")]
    RestartPastEnd {
        /// Where the transfer would resume, in bytes.
        offset: u64,
        /// How long the file is, in bytes.
        size: u64,
    },
    /// Another transfer is running in this session.
    #[error("another transfer is running in this session")]
    Busy,
    /// The transfer cannot be divided among nodes in this way.
    #[error(transparent)]
    Share(#[from] ShareError),
}

/// Why a node refuses its share of a transfer of several nodes ([`crate::Share`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// A stream has one channel, and the lines of a listing come from one place.
    #[error("only files in MODE E can be divided among data nodes: use one node")]
    NotBlocks,
    /// The stripes of the share are not those of the session's data port, or not different ones of the transfer.
    #[error(
        "the share has {stripes} stripes of {total}, and the data port {peers}: they must be as many, and different ones \
         of the transfer"
    )]
    Stripes {
        /// The stripes in the share.
        stripes: usize,
        /// The stripes of the transfer.
        total: usize,
        /// The peers or listeners of the session.
        peers: usize,
    },
    /// No node knows which bytes the others have written.
    #[error(
        "several data nodes cannot write a file in its order (ordered=1): use one node to receive it"
    )]
    Ordered,
    /// The end of the file moves while other nodes open it.
    #[error("several data nodes cannot append to a file: use one node, or name the offset")]
    Append,
}

/// How a peer violated the protocol.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An invalid block header.
    #[error("bad block header: {0}")]
    Header(#[from] BlockError),
    /// EOD and EOF contradict each other.
    #[error("bad end of data: {0}")]
    EndOfData(#[from] EodError),
    /// Two blocks contain the same bytes of the file.
    #[error("blocks overlap: {0}")]
    Overlap(#[from] Overlap),
    /// The received ranges are too fragmented to record.
    #[error("the blocks leave more than {limit} holes in the file")]
    TooManyHoles {
        /// The largest accepted number of holes.
        limit: usize,
    },
    /// A data connection ended in the middle of a block or before its EOD.
    #[error("an end-of-file was reached on a data channel before its end of data (EOD)")]
    EndedBeforeEod,
    /// Some of the EODs that EOF announced did not come.
    #[error(
        "EOF announced {announced} data connections with an EOD each, but only {seen} EODs came within {} seconds",
        waited.as_secs()
    )]
    MissingEods {
        /// The number in EOF.
        announced: u64,
        /// The EODs received.
        seen: u64,
        /// The time limit.
        waited: Duration,
    },
    /// Every connection has sent its EOD, and none sent EOF.
    #[error(
        "no EOF came: {seen} data connections ended their data, but none said how many there are"
    )]
    MissingEof {
        /// The EODs received.
        seen: u64,
    },
    /// Fewer bytes arrived than announced.
    #[error(
        "{arrived} bytes arrived of {promised} that were announced by ALLO; missing: {}",
        summary(missing)
    )]
    Incomplete {
        /// The size in ALLO, in bytes.
        promised: u64,
        /// The bytes received, including those of earlier attempts.
        arrived: u64,
        /// The missing ranges.
        missing: RangeSet,
    },
    /// Bytes come behind the end of the file or part ([`crate::Handling::limit`]).
    #[error(
        "the peer sends more than the {limit} bytes of the file or part; nothing was written behind them"
    )]
    Excess {
        /// Where the file or part ends, in bytes.
        limit: u64,
    },
    /// A violation that another machine found, in its words.
    #[error("{0}")]
    Violation(String),
    /// The end of the data came too early on another machine, in its words.
    #[error("{0}")]
    Unfinished(String),
    /// The file does not have the checksum that was announced.
    #[error("the checksum is not the one that was announced")]
    WrongChecksum {
        /// The checksum of the file.
        computed: String,
        /// The announced one.
        expected: String,
    },
}

/// The first few ranges of a set, for a reply line.
fn summary(ranges: &RangeSet) -> String {
    const SHOWN: usize = 8;
    let mut text = ranges
        .iter()
        .take(SHOWN)
        .map(|range| format!("{}-{}", range.start, range.end))
        .collect::<Vec<_>>()
        .join(",");
    if ranges.len() > SHOWN {
        text.push_str(&format!(" and {} more ranges", ranges.len() - SHOWN));
    }
    text
}
