//! The commands that only change the negotiated state.

use crate::command::{
    BufferVerb, Command, DataChannelAuthentication, MarkerEvent, OptsCommand, ProtectionLevel,
    Representation, Restart, TransferMode,
};
#[cfg(any(test, fuzzing))]
use crate::command::{EpsvRequest, SiteCommand};

/// A command that only changes the negotiated state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// `TYPE`.
    Type(Representation),
    /// `MODE`.
    Mode(TransferMode),
    /// `STRU F`.
    Structure,
    /// `SBUF`: socket buffers in bytes; 0 is the system's default.
    Buffers(u64),
    /// `SITE RETRBUFSIZE` and its synonyms.
    SiteBuffers {
        /// The synonym.
        verb: BufferVerb,
        /// The size in bytes; 0 is the system's default.
        bytes: u64,
    },
    /// `TREV`.
    Markers {
        /// The marker.
        event: MarkerEvent,
        /// The time between two markers; zero is never.
        seconds: u32,
    },
    /// `ALLO`: the bytes of the file to be stored.
    Allocation(u64),
    /// `REST`.
    Restart(Restart),
    /// `EPSV ALL`.
    OnlyEpsv,
    /// `OPTS`.
    Options(OptsCommand),
    /// `DCAU`.
    Authentication(DataChannelAuthentication),
    /// `PBSZ` and `PROT`.
    Protection(ProtectionSetting),
}

#[cfg(any(test, fuzzing))]
impl Setting {
    /// The setting of a command, if it only changes the negotiated state.
    pub fn of(command: &Command) -> Option<Self> {
        Some(match command.clone() {
            Command::Type(representation) => Self::Type(representation),
            Command::Mode(mode) => Self::Mode(mode),
            Command::Stru => Self::Structure,
            Command::Sbuf(bytes) => Self::Buffers(bytes),
            Command::Site(SiteCommand::BufferSize { verb, bytes }) => {
                Self::SiteBuffers { verb, bytes }
            }
            Command::Trev { event, seconds } => Self::Markers { event, seconds },
            Command::Allo { bytes, .. } => Self::Allocation(bytes),
            Command::Rest(restart) => Self::Restart(restart),
            Command::Epsv(EpsvRequest::All) => Self::OnlyEpsv,
            Command::Opts(options) => Self::Options(options),
            Command::Dcau(peer) => Self::Authentication(peer),
            command => Self::Protection(ProtectionSetting::of(&command)?),
        })
    }
}

/// A command about the protection of data channels. With TLS, clients may send it before login (RFC 4217 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionSetting {
    /// `PBSZ`: the largest protected block, in bytes.
    BlockBytes(u32),
    /// `PROT`.
    Level(ProtectionLevel),
}

impl ProtectionSetting {
    /// The setting of `PBSZ` and `PROT`; `None` for other commands.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Pbsz(bytes) => Some(Self::BlockBytes(*bytes)),
            Command::Prot(level) => Some(Self::Level(*level)),
            _ => None,
        }
    }
}

impl From<ProtectionSetting> for Command {
    fn from(setting: ProtectionSetting) -> Self {
        match setting {
            ProtectionSetting::BlockBytes(bytes) => Self::Pbsz(bytes),
            ProtectionSetting::Level(level) => Self::Prot(level),
        }
    }
}
