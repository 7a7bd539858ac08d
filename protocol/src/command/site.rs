//! `SITE`: commands outside every standard, as Globus has them.

use jiff::Timestamp;

use super::{AlgorithmName, Text};
use crate::path::PathArgument;

/// One `SITE` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiteCommand {
    /// `SITE HELP`, perhaps for one command.
    Help(Option<Text>),
    /// `SITE SBUF`, `SITE RETRBUFSIZE` and its kin: socket buffers for data channels.
    BufferSize {
        /// Under which of its names.
        verb: BufferVerb,
        /// The size in bytes; 0 leaves it to the system.
        bytes: u64,
    },
    /// `SITE CHMOD`.
    Chmod {
        /// The new mode.
        mode: FileMode,
        /// The file.
        path: PathArgument,
    },
    /// `SITE CHGRP`.
    Chgrp {
        /// A name or a number.
        group: Text,
        /// The file.
        path: PathArgument,
    },
    /// `SITE UTIME`: sets the time of the last change.
    Utime {
        /// The time, whole seconds.
        modified: Timestamp,
        /// The file.
        path: PathArgument,
    },
    /// `SITE SYMLINKFROM`: what a symbolic link shall point to.
    SymlinkFrom(PathArgument),
    /// `SITE SYMLINKTO`: makes the link.
    SymlinkTo(PathArgument),
    /// `SITE RDEL`: removes a whole tree.
    Rdel(PathArgument),
    /// `SITE TRNC`: shortens a file.
    Trnc {
        /// The new length in bytes.
        length: u64,
        /// The file.
        path: PathArgument,
    },
    /// `SITE WHOAMI`.
    Whoami,
    /// `SITE VERSION`.
    Version,
    /// `SITE SETNETSTACK`: the driver stack of data channels.
    SetNetStack(StackRequest),
    /// `SITE SETDISKSTACK`: the driver stack of files.
    SetDiskStack(StackRequest),
    /// `SITE CLIENTINFO`: `key=value;` pairs about the client.
    ClientInfo(Text),
    /// `SITE TASKID`: a label for the log.
    TaskId(Text),
    /// `SITE STORATTR`: what to do with stored files.
    StorAttr(StoreAttributes),
    /// `SITE AUTHZ_ASSERT`: an authorisation assertion.
    AuthzAssert(Text),
    /// `SITE RESTRICT`: narrows the paths of the session.
    Restrict(Text),
    /// `SITE CHROOT`: narrows the root of the session.
    Chroot(PathArgument),
    /// `SITE DSI`: asks for another storage interface.
    Dsi(Text),
    /// `SITE SHARING`.
    Sharing(Text),
    /// `SITE HTTP`.
    Http(Text),
    /// `SITE UPAS`: a passive data port over UDT.
    Upas(Text),
    /// `SITE UPRT`: an active data port over UDT.
    Uprt(Text),
    /// `SITE FAULT`: asks a command to fail.
    Fault(Text),
}

/// The names under which clients set buffer sizes. globus-url-copy tries them in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferVerb {
    /// `RETRBUFSIZE`.
    RetrBufSize,
    /// `RBUFSZ`.
    RBufSz,
    /// `RBUFSIZ`.
    RBufSiz,
    /// `STORBUFSIZE`.
    StorBufSize,
    /// `SBUFSZ`.
    SBufSz,
    /// `SBUFSIZ`.
    SBufSiz,
    /// `BUFSIZE`.
    BufSize,
    /// `SBUF`.
    SBuf,
}

/// The transfers that a buffer size is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferSide {
    /// Those that send files.
    Retrieve,
    /// Those that receive files.
    Store,
    /// All.
    Both,
}

impl BufferVerb {
    /// The transfers it is for.
    pub fn side(self) -> BufferSide {
        match self {
            Self::RetrBufSize | Self::RBufSz | Self::RBufSiz => BufferSide::Retrieve,
            Self::StorBufSize | Self::SBufSz | Self::SBufSiz => BufferSide::Store,
            Self::BufSize | Self::SBuf => BufferSide::Both,
        }
    }
}

/// Permission bits, including set-user-id, set-group-id and sticky.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u16);

impl FileMode {
    /// Takes bits, or `None` if there are others than `0o7777`.
    pub fn new(bits: u16) -> Option<Self> {
        (bits <= 0o7777).then_some(Self(bits))
    }

    /// The bits.
    pub fn bits(self) -> u16 {
        self.0
    }
}

/// The stack that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackRequest {
    /// `default`: what the server is configured for.
    Default,
    /// A stack string; [`crate::stack`] reads it.
    Drivers(Text),
}

/// What `SITE STORATTR` wants of stored files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreAttributes {
    /// `modify=`: the time of the last change to set, whole seconds.
    pub modified: Option<Timestamp>,
    /// `checksum.<algorithm>=`: a checksum that the file must have, in lower-case hexadecimal.
    pub checksum: Option<(AlgorithmName, Text)>,
}
