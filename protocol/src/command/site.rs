//! `SITE`: commands outside of the standards, as in Globus.

use jiff::Timestamp;

use super::arguments::Text;
use super::error::CommandError;
use super::grammar::{Argument, last_path, number, path, text, timestamp, valid};
use super::site_arguments::{Assertion, BufferVerb, FileMode, StackRequest, StoreAttributes};
use crate::help;
use crate::path::PathArgument;
use crate::time::TimeValue;

/// A `SITE` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiteCommand {
    /// `SITE HELP`, optionally for one command.
    Help(Option<Text>),
    /// `SITE SBUF`, `SITE RETRBUFSIZE` and their synonyms: socket buffers for data channels.
    BufferSize {
        /// The synonym.
        verb: BufferVerb,
        /// The size in bytes; 0 is the system's default.
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
    /// `SITE SYMLINKFROM`: the target of a symbolic link.
    SymlinkFrom(PathArgument),
    /// `SITE SYMLINKTO`: creates the link.
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
    /// `SITE GETNETSTACK`: queries the stack of data channels. Specific to this server.
    GetNetStack,
    /// `SITE SETDISKSTACK`: the driver stack of files.
    SetDiskStack(StackRequest),
    /// `SITE CLIENTINFO`: `key=value;` pairs about the client.
    ClientInfo(Text),
    /// `SITE TASKID`: a label for the log.
    TaskId(Text),
    /// `SITE STORATTR`: attributes of stored files.
    StorAttr(StoreAttributes),
    /// `SITE AUTHZ_ASSERT`: an authorization assertion.
    AuthzAssert(Assertion),
    /// `SITE RESTRICT`: narrows the paths of the session.
    Restrict(Text),
    /// `SITE CHROOT`: narrows the root of the session.
    Chroot(PathArgument),
    /// `SITE DSI`: requests another storage interface.
    Dsi(Text),
    /// `SITE SHARING`.
    Sharing(Text),
    /// `SITE HTTP`.
    Http(Text),
    /// `SITE UPAS`: a passive data port over UDT.
    Upas(Text),
    /// `SITE UPRT`: an active data port over UDT.
    Uprt(Text),
    /// `SITE FAULT`: makes a command fail.
    Fault(Text),
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

    /// The rest of the line after `SITE`.
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
