//! The data-node interface: all that a session may ask of storage and data channels.
//!
//! A session (a control channel) never touches a data socket or a file's bytes. It attaches to a
//! [`DataNode`] and speaks to it in plain values: listen or connect, a [`Plan`], cancel; and gets
//! [`Event`]s and [`Progress`] back. [`crate::LocalNode`] is the node in the same process. Everything
//! here but [`ListenRequest::session_drivers`] can be carried over a network, so that a node may live on
//! another machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::Source;
use gridhaul_stack::{Cancel, Details, Driver, ListenError, Movement, SocketOptions, StackError};
use gridhaul_storage::{ChecksumAlgorithm, FoundChecksum, Storage, StorageError};

use crate::{Admission, TransferError};

/// Something that holds storage and data channels.
pub trait DataNode: Send + Sync + fmt::Debug {
    /// Opens a node's side of a session.
    ///
    /// # Errors
    ///
    /// When the account may not be used here, or its root cannot be opened.
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError>;

    /// Whether a stack could be built here; nothing is opened.
    ///
    /// # Errors
    ///
    /// When a driver or an option is unknown, or there is no transport.
    fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError>;

    /// Whether a session listens for data connections at this address, as it tells it to peers, at this moment.
    fn listens_at(&self, address: SocketAddr) -> bool;

    /// How busy the node is at this moment.
    fn load(&self) -> NodeLoad;
}

/// How busy a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLoad {
    /// Movers that send.
    pub senders: MoverLoad,
    /// Movers that receive.
    pub receivers: MoverLoad,
    /// What the buffers that movers hold take together, in bytes.
    pub buffer_bytes: usize,
    /// What they may take, in bytes.
    pub buffer_bytes_limit: usize,
}

/// How busy the movers of one direction are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoverLoad {
    /// Those that are at work, or about to be.
    pub busy: usize,
    /// How many there may be.
    pub limit: usize,
    /// Transfers that wait for some.
    pub awaited: usize,
}

/// Whose files a session works with.
#[derive(Debug, Clone)]
pub struct NodeAccount {
    /// Whom shares of the node are counted for.
    pub source: Source,
    /// The name that the session logged in with.
    pub name: String,
    /// The local account whose rights the files are used with; `None` is the server's own, as for
    /// anonymous and password users.
    pub account: Option<String>,
    /// The directory that the session sees as `/`. For a local account `$HOME` and `$USER` in it stand
    /// for the account's home directory and its name.
    pub root: PathBuf,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Who may open data channels to this session.
    pub admission: Admission,
}

/// Why a session gets no files.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The local account may not be used here, or not now; the text says why and what to do.
    #[error("{0}")]
    Account(String),
    /// The root cannot be opened.
    #[error("Your directory cannot be opened: {}.", .0.reason())]
    Root(#[from] StorageError),
}

/// One session's files and data channels on a node.
pub trait NodeSession: Send + Sync + fmt::Debug {
    /// The session's files; every call blocks.
    fn storage(&self) -> Arc<dyn Storage>;

    /// Where the session begins, as a path beneath its root: the home directory of its local account if
    /// that lies there, else `/`.
    fn home(&self) -> PathBuf;

    /// The checksum of a part of a file. Blocks.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or read, or `cancel` was thrown (`ECANCELED`).
    fn checksum(
        &self,
        request: &ChecksumRequest,
        done: &AtomicU64,
        cancel: &Cancel,
    ) -> Result<FoundChecksum, StorageError>;

    /// Sets a file's time of modification, which does not change what is known of its content. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::set_modified`].
    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError>;

    /// Gives a file another name or other rights, which does not change what is known of its content. Blocks.
    ///
    /// # Errors
    ///
    /// Those of the call of [`Storage`] that the change is for.
    fn relabel(&self, path: &Path, change: Relabel<'_>) -> Result<(), StorageError>;

    /// Gives up the channels and listeners there are, and listens for new ones: `PASV`, `EPSV`,
    /// `SPAS`. Returns the addresses to advertise, one for each stripe.
    ///
    /// # Errors
    ///
    /// When the stack cannot be built or no port is free.
    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure>;

    /// Gives up the channels and listeners there are, and remembers where the next transfer connects
    /// to: `PORT`, `EPRT`, `SPOR`. One address is one stripe.
    ///
    /// # Errors
    ///
    /// When the stack cannot be built.
    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError>;

    /// Closes all channels and listeners: after `MODE`, `DCAU` and the like.
    fn release(&self);

    /// Whether it would help to know what is sent next ([`Self::look_ahead`]).
    fn looks_ahead(&self) -> bool;

    /// Names files that the session will probably send next, at most [`crate::LOOK_AHEAD_FILES`]. It is a hint, and
    /// returns at once.
    fn look_ahead(&self, paths: Vec<PathBuf>);

    /// Starts a transfer; returns at once. There is one transfer at a time in a session: a second one
    /// fails. Events come from other threads, in order, [`Event::Finished`] last and exactly once.
    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer>;

    /// Whether [`Self::transfer_here`] may be over before another thread has woken up: a small file on a
    /// channel that is there.
    fn may_be_quick(&self, _plan: &Plan) -> bool {
        false
    }

    /// As [`Self::transfer`], but on the calling thread as far as the peer need not be waited for. Blocks
    /// as long as storage does. Afterwards the transfer may be held ([`RunningTransfer::is_held`]).
    fn transfer_here(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        self.transfer(plan, events)
    }
}

/// A change of a file that leaves its content as it is.
#[derive(Debug, Clone, Copy)]
pub enum Relabel<'a> {
    /// Another name; see [`Storage::rename`].
    Name(&'a Path),
    /// Other permission bits; see [`Storage::set_mode`].
    Mode(u32),
    /// Another group; see [`Storage::set_group`].
    Group(&'a str),
}

/// A checksum that a session wants to know.
#[derive(Debug, Clone)]
pub struct ChecksumRequest {
    /// The file.
    pub path: PathBuf,
    /// How it is computed.
    pub algorithm: ChecksumAlgorithm,
    /// Where the part starts, in bytes; past the end it is empty.
    pub offset: u64,
    /// How long the part is at most, in bytes; `None` is to the end of the file.
    pub length: Option<u64>,
}

/// Takes the events of one transfer.
pub type EventSink = Box<dyn Fn(Event) + Send + Sync>;

/// A transfer under way, or just ended.
pub trait RunningTransfer: Send + Sync + fmt::Debug {
    /// Ends the transfer with [`TransferError::Cancelled`] and this reason; a finished one stays as it is.
    fn cancel(&self, reason: CancelReason);

    /// How far it is.
    fn progress(&self) -> Progress;

    /// Whether all has arrived and is being put on the disk, which no cancellation ends, and during which no
    /// byte moves ([`SyncPolicy::Data`]).
    fn is_settling(&self) -> bool;

    /// The received ranges that storage has accepted and that no earlier call returned. Relative to
    /// the start of the part that is transferred, as `111` markers count.
    fn take_received(&self) -> RangeSet;

    /// Whether the transfer waits for [`Self::go_on_here`] or [`Self::go_on_beside`]: it has told [`Event::Started`], and what comes
    /// next depends on a peer that has to hear of that.
    fn is_held(&self) -> bool {
        false
    }

    /// Goes on with a transfer that is held, on the calling thread for a millisecond at most, and then on
    /// another.
    fn go_on_here(&self) {}

    /// Goes on with a transfer that is held, on a thread of the node.
    fn go_on_beside(&self) {}
}

/// Why a session ends a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The client said `ABOR`.
    Abort,
    /// The control channel is gone.
    ControlChannelLost,
    /// Too few bytes moved for too long.
    Stalled,
    /// The server shuts down.
    Shutdown,
}

/// Where a session listens.
#[derive(Debug, Clone)]
pub struct ListenRequest {
    /// The driver stack.
    pub stack: StackSpec,
    /// Local addresses, one listener each.
    pub local: Vec<IpAddr>,
    /// What the session asked of its sockets.
    pub sockets: SocketOptions,
    /// Drivers of this session only, which know who it is; each takes the place of the node's driver
    /// of the same name.
    pub session_drivers: Vec<Arc<dyn Driver>>,
}

/// Where a session connects to.
#[derive(Debug, Clone)]
pub struct ConnectRequest {
    /// The driver stack.
    pub stack: StackSpec,
    /// The stripes of the peer, in order.
    pub peers: Vec<SocketAddr>,
    /// What the session asked of its sockets.
    pub sockets: SocketOptions,
    /// As in [`ListenRequest::session_drivers`].
    pub session_drivers: Vec<Arc<dyn Driver>>,
}

/// Why a node does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenFailure {
    /// The stack cannot be built.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// No port, or not our address.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// One transfer, complete: nothing of the session's state is asked again.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is moved.
    pub task: Task,
    /// Stream mode or MODE E.
    pub mode: TransferMode,
    /// Whether line ends are converted (`TYPE A`); in stream mode only.
    pub representation: Representation,
    /// MODE E, sending: connections to each stripe, 1 to 64.
    pub parallelism: u8,
    /// MODE E, sending: how a file is dealt out to stripes.
    pub layout: StripeLayout,
    /// How files are treated.
    pub handling: Handling,
}

/// How a transfer treats its file, as the administrator and the client want it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handling {
    /// What is made sure of before a received file counts as stored.
    pub sync: SyncPolicy,
    /// Received bytes are written in the order of the file, for storage that wants that (`ordered=1`).
    pub ordered: bool,
    /// Holes stay holes: zeros that are received are not written, and holes are not read, but sent as zeros.
    pub sparse: bool,
    /// Checksums to compute while the file arrives.
    pub checksums: Vec<ChecksumAlgorithm>,
    /// Also those that clients of the node have asked for lately, of files that were just stored.
    pub checksums_asked_for: bool,
}

/// How far a received file must be on its way to the disk before the client hears 226.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The kernel writes it when it likes; a crash of the machine may lose it.
    #[default]
    None,
    /// Writing has begun for all of it, while the file arrived, and what went wrong until the file is
    /// closed is an error.
    Close,
    /// The data is on the disk (`fdatasync`).
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
        /// How long the part is at most; `None` is to the end of the file.
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
        /// How many bytes the peer said it would send, or the file would have (`ALLO`).
        promised: Option<u64>,
    },
}

/// Where received bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// To the start of the file, whose old content is cut away unless the transfer is a restart.
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

/// Opens what a listing is made from.
pub type OpenLines = dyn Fn(&dyn Storage) -> Result<LineIterator, StorageError> + Send + Sync;

/// The pieces of a listing, in order.
pub type LineIterator = Box<dyn Iterator<Item = Result<Vec<u8>, StorageError>> + Send>;

impl fmt::Debug for LineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineSource").finish_non_exhaustive()
    }
}

/// What happens to a transfer.
#[derive(Debug)]
pub enum Event {
    /// All movers are busy; the transfer waits in a fair queue.
    Queued {
        /// Transfers that were there before this one.
        ahead: usize,
    },
    /// Files and channels are ready: the time for `150`, or `125` when channels are used again.
    Started {
        /// Data channels of an earlier transfer are used.
        reused: bool,
    },
    /// The end, in success or not.
    Finished(Box<Outcome>),
}

/// How a transfer ended, and what the transfer log tells of it.
#[derive(Debug)]
pub struct Outcome {
    /// Success is proven: every promised byte arrived, every EOD was counted, close succeeded.
    pub result: Result<(), TransferError>,
    /// File or listing bytes moved.
    pub bytes: u64,
    /// Data channels used, over all stripes.
    pub channels: usize,
    /// Stripes used.
    pub stripes: usize,
    /// The other ends of the data channels, each address once.
    pub peers: Vec<IpAddr>,
    /// The kernel buffer of a channel, in bytes.
    pub buffer_bytes: usize,
    /// The largest block that was moved at once, in bytes.
    pub block_bytes: usize,
    /// How the driver moved the bytes, where it had a choice.
    pub movement: Option<Movement>,
    /// What drivers told of the channels, together.
    pub details: Details,
    /// The checksums of a received file that were computed while it arrived.
    pub checksums: Vec<(ChecksumAlgorithm, String)>,
    /// Data connections from hosts that may not open one, or whose handshake failed; they were closed.
    pub refused: usize,
    /// The last of them that failed its handshake.
    pub last_refusal: Option<Refusal>,
}

/// A data connection that failed its handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Who called.
    pub peer: SocketAddr,
    /// What was wrong: with data channel authentication, who the peer is and who it had to be.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.reason)
    }
}

/// Bytes moved so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of each stripe, in the order of the stripes; at least one entry.
    pub stripes: Vec<u64>,
}
