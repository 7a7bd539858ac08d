//! `SITE`: commands outside every standard, as Globus has them.

use std::fmt;

use jiff::Timestamp;

use super::grammar::{
    Argument, Pair, last_path, number, pairs, path, text, timestamp, valid, whole_seconds,
};
use super::{AlgorithmName, ArgumentFault, Checksum, CommandError, Shown, Text};
use crate::help;
use crate::path::PathArgument;
use crate::time::TimeValue;

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
    /// `SITE GETNETSTACK`: asks what data channels run over. No other server has it.
    GetNetStack,
    /// `SITE SETDISKSTACK`: the driver stack of files.
    SetDiskStack(StackRequest),
    /// `SITE CLIENTINFO`: `key=value;` pairs about the client.
    ClientInfo(Text),
    /// `SITE TASKID`: a label for the log.
    TaskId(Text),
    /// `SITE STORATTR`: what to do with stored files.
    StorAttr(StoreAttributes),
    /// `SITE AUTHZ_ASSERT`: an authorisation assertion.
    AuthzAssert(Assertion),
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
    const BITS: u16 = 0o7777;

    /// Takes bits, or `None` if there are others than `0o7777`.
    pub fn new(bits: u16) -> Option<Self> {
        (bits <= Self::BITS).then_some(Self(bits))
    }

    /// The bits.
    pub fn bits(self) -> u16 {
        self.0
    }
}

/// An authorisation assertion, which no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Assertion(pub Text);

impl fmt::Debug for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
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
    /// `checksum.<algorithm>=`: a checksum that the file must have.
    pub checksum: Option<(AlgorithmName, Checksum)>,
}

impl SiteCommand {
    pub(super) fn parse(argument: Argument<'_>) -> Result<Self, CommandError> {
        let (name, rest) = argument.split_word("the command")?;
        let name = [b"SITE ", name.to_ascii_uppercase().as_slice()].concat();
        let known = std::str::from_utf8(&name).ok().and_then(help::entry);
        let Some((verb, syntax)) = known else {
            return Err(CommandError::unknown(&name));
        };
        let argument = Argument {
            verb,
            syntax,
            ..rest
        };
        if let Some(verb) = BufferVerb::parse(verb) {
            let bytes = argument.read(number("the size"))?;
            return Ok(Self::BufferSize { verb, bytes });
        }
        Self::parse_file_command(argument).unwrap_or_else(|| Self::parse_other(argument))
    }

    /// The commands that take a path.
    fn parse_file_command(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        Some(match argument.verb {
            "SITE CHMOD" => {
                let mode = valid(
                    "the mode",
                    "octal: permission bits, or a whole st_mode",
                    FileMode::parse,
                );
                argument
                    .read((mode, last_path))
                    .map(|(mode, path)| Self::Chmod { mode, path })
            }
            "SITE CHGRP" => {
                let group = valid("the group", "a name or a number", |word| {
                    Text::new(std::str::from_utf8(word).ok()?)
                });
                argument
                    .read((group, last_path))
                    .map(|(group, path)| Self::Chgrp { group, path })
            }
            "SITE UTIME" => argument
                .read((timestamp, last_path))
                .map(|(modified, path)| Self::Utime { modified, path }),
            "SITE TRNC" => argument
                .read((number("the length"), last_path))
                .map(|(length, path)| Self::Trnc { length, path }),
            "SITE SYMLINKFROM" => argument.read(path).map(Self::SymlinkFrom),
            "SITE SYMLINKTO" => argument.read(path).map(Self::SymlinkTo),
            "SITE RDEL" => argument.read(path).map(Self::Rdel),
            "SITE CHROOT" => argument.read(path).map(Self::Chroot),
            _ => return None,
        })
    }

    fn parse_other(argument: Argument<'_>) -> Result<Self, CommandError> {
        let read = |what| argument.read(text(what));
        match argument.verb {
            "SITE HELP" => argument.read_optional(text("the command")).map(Self::Help),
            "SITE WHOAMI" => argument.none().map(|()| Self::Whoami),
            "SITE VERSION" => argument.none().map(|()| Self::Version),
            "SITE SETNETSTACK" => StackRequest::parse(argument).map(Self::SetNetStack),
            "SITE GETNETSTACK" => argument.none().map(|()| Self::GetNetStack),
            "SITE SETDISKSTACK" => StackRequest::parse(argument).map(Self::SetDiskStack),
            "SITE STORATTR" => StoreAttributes::parse(argument).map(Self::StorAttr),
            "SITE CLIENTINFO" => read("the information").map(Self::ClientInfo),
            "SITE TASKID" => read("the task").map(Self::TaskId),
            "SITE AUTHZ_ASSERT" => read("the assertion").map(Assertion).map(Self::AuthzAssert),
            "SITE RESTRICT" => read("the restriction").map(Self::Restrict),
            "SITE DSI" => read("the interface").map(Self::Dsi),
            "SITE SHARING" => read("the command").map(Self::Sharing),
            "SITE HTTP" => read("the operation").map(Self::Http),
            "SITE UPAS" => read("the flag").map(Self::Upas),
            "SITE UPRT" => read("the address").map(Self::Uprt),
            "SITE FAULT" => read("the command").map(Self::Fault),
            verb => Err(CommandError::unknown(verb.as_bytes())),
        }
    }

    /// What follows `SITE` on the line.
    pub(super) fn encode(&self) -> Vec<u8> {
        let joined = |name: &str, argument: &[u8]| [name.as_bytes(), b" ", argument].concat();
        let with_path = |words: String, path: &PathArgument| joined(&words, path.as_bytes());
        let with_text = |name, text: &Text| joined(name, text.as_str().as_bytes());
        match self {
            Self::Help(None) => b"HELP".to_vec(),
            Self::Help(Some(topic)) => with_text("HELP", topic),
            Self::BufferSize { verb, bytes } => format!("{} {bytes}", verb.name()).into_bytes(),
            Self::Chmod { mode, path } => with_path(format!("CHMOD {:04o}", mode.bits()), path),
            Self::Chgrp { group, path } => with_path(format!("CHGRP {group}"), path),
            Self::Utime { modified, path } => {
                with_path(format!("UTIME {}", TimeValue(*modified)), path)
            }
            Self::SymlinkFrom(path) => joined("SYMLINKFROM", path.as_bytes()),
            Self::SymlinkTo(path) => joined("SYMLINKTO", path.as_bytes()),
            Self::Rdel(path) => joined("RDEL", path.as_bytes()),
            Self::Trnc { length, path } => with_path(format!("TRNC {length}"), path),
            Self::Whoami => b"WHOAMI".to_vec(),
            Self::Version => b"VERSION".to_vec(),
            Self::SetNetStack(stack) => joined("SETNETSTACK", stack.as_str().as_bytes()),
            Self::GetNetStack => b"GETNETSTACK".to_vec(),
            Self::SetDiskStack(stack) => joined("SETDISKSTACK", stack.as_str().as_bytes()),
            Self::ClientInfo(text) => with_text("CLIENTINFO", text),
            Self::TaskId(text) => with_text("TASKID", text),
            Self::StorAttr(attributes) => joined("STORATTR", attributes.encode().as_bytes()),
            Self::AuthzAssert(Assertion(text)) => with_text("AUTHZ_ASSERT", text),
            Self::Restrict(text) => with_text("RESTRICT", text),
            Self::Chroot(path) => joined("CHROOT", path.as_bytes()),
            Self::Dsi(text) => with_text("DSI", text),
            Self::Sharing(text) => with_text("SHARING", text),
            Self::Http(text) => with_text("HTTP", text),
            Self::Upas(text) => with_text("UPAS", text),
            Self::Uprt(text) => with_text("UPRT", text),
            Self::Fault(text) => with_text("FAULT", text),
        }
    }
}

impl BufferVerb {
    pub(super) const ALL: [Self; 8] = [
        Self::RetrBufSize,
        Self::RBufSz,
        Self::RBufSiz,
        Self::StorBufSize,
        Self::SBufSz,
        Self::SBufSiz,
        Self::BufSize,
        Self::SBuf,
    ];

    /// Reads `SITE` and a name in capitals.
    fn parse(verb: &str) -> Option<Self> {
        let name = verb.strip_prefix("SITE ")?;
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::RetrBufSize => "RETRBUFSIZE",
            Self::RBufSz => "RBUFSZ",
            Self::RBufSiz => "RBUFSIZ",
            Self::StorBufSize => "STORBUFSIZE",
            Self::SBufSz => "SBUFSZ",
            Self::SBufSiz => "SBUFSIZ",
            Self::BufSize => "BUFSIZE",
            Self::SBuf => "SBUF",
        }
    }
}

impl FileMode {
    /// Reads permission bits, or a whole `st_mode` with the file type above them, as gfal2 sends it: the type is
    /// dropped, as globus-gridftp-server 13.24 does. That server also takes `999` and `u+x`, and sets wrong bits.
    fn parse(word: &[u8]) -> Option<Self> {
        if !word.iter().all(|digit| (b'0'..=b'7').contains(digit)) {
            return None;
        }
        // S_IFMT and the permission bits are 16 bits together (inode(7)).
        let mode = u16::from_str_radix(std::str::from_utf8(word).ok()?, 8).ok()?;
        Self::new(mode & Self::BITS)
    }
}

impl StackRequest {
    fn parse(argument: Argument<'_>) -> Result<Self, CommandError> {
        let text = argument.read(text("the stack"))?;
        Ok(if text.as_str().trim().eq_ignore_ascii_case("default") {
            Self::Default
        } else {
            Self::Drivers(text)
        })
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Default => "default",
            Self::Drivers(stack) => stack.as_str(),
        }
    }
}

impl StoreAttributes {
    fn parse(argument: Argument<'_>) -> Result<Self, CommandError> {
        let mut attributes = Self::default();
        for pair in argument.read(pairs)? {
            attributes.set(&pair).ok_or_else(|| {
                argument.fault(ArgumentFault::Invalid {
                    what: "the attribute",
                    given: Shown::new(&[pair.key, b"=", pair.value].concat()),
                    expected: "modify=YYYYMMDDHHMMSS or checksum.algorithm=hexadecimal",
                })
            })?;
        }
        Ok(attributes)
    }

    fn set(&mut self, pair: &Pair<'_>) -> Option<()> {
        let key = std::str::from_utf8(pair.key).ok()?.to_ascii_lowercase();
        if key == "modify" {
            self.modified = Some(whole_seconds(pair.value).ok()?);
        } else {
            let algorithm = AlgorithmName::new(key.strip_prefix("checksum.")?)?;
            self.checksum = Some((algorithm, Checksum::parse(pair.value)?));
        }
        Some(())
    }

    fn encode(&self) -> String {
        let mut line = String::new();
        if let Some(modified) = self.modified {
            line.push_str(&format!("modify={};", TimeValue(modified)));
        }
        if let Some((algorithm, checksum)) = &self.checksum {
            let algorithm = algorithm.as_str().to_ascii_lowercase();
            line.push_str(&format!("checksum.{algorithm}={checksum};"));
        }
        line
    }
}
