//! The negotiated state of a session, and the rules for the order of commands.
//!
//! [`Negotiated`] holds the settings, the data port, the parameters of the next transfer, and the first command of a pair
//! (`RNFR`, `RNTO`). It does no I/O: it returns actions for the session ([`Channels::Release`], [`Passive::Listen`]) or refusals
//! ([`Refusal`]), and the session reports the results.

mod port;
mod refusal;
mod security;
mod setting;
mod settings;
mod transfer;

use std::mem;

use crate::address::StripeAddresses;
use crate::command::{
    AlgorithmName, BufferSide, Checksum, Command, Representation, Restart, SiteCommand,
    StackRequest, StoreAttributes, TransferMode,
};
use crate::path::{PathArgument, RemotePath};
use crate::ranges::RangeSet;
use crate::reply::Reply;

pub use port::{Channels, Direction, Passive, PassiveRequest, TransferEnd};
pub use refusal::Refusal;
pub use security::{DataPolicy, DataSecurity, Mechanism, PeerDemand};
pub use setting::{ProtectionSetting, Setting};
pub use settings::{MAX_PARALLELISM, Settings};
pub use transfer::{NextTransfer, Terms};

use port::DataPort;
use security::Security;

/// The negotiated state of a session.
#[derive(Debug, Clone, Default)]
pub struct Negotiated {
    settings: Settings,
    security: Security,
    port: DataPort,
    next: NextTransfer,
    /// `RNFR` and `SITE SYMLINKFROM`, until the next command but `NOOP`.
    first_half: Option<FirstHalf>,
}

/// The result of a command that only changes this state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The reply.
    pub reply: Reply,
    /// The action for data channels.
    pub channels: Channels,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FirstHalf {
    RenameFrom(RemotePath),
    SymlinkFrom(PathArgument),
}

impl Negotiated {
    /// The state of a new session.
    pub fn new(policy: DataPolicy) -> Self {
        Self {
            security: Security::new(policy),
            ..Self::default()
        }
    }

    /// The client's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Call it first for every command: only `NOOP` is allowed between `RNFR` and `RNTO`, and between `SITE SYMLINKFROM` and
    /// `SITE SYMLINKTO`.
    pub fn observe(&mut self, command: &Command) {
        match command {
            Command::Noop | Command::Rnto(_) | Command::Site(SiteCommand::SymlinkTo(_)) => {}
            _ => self.first_half = None,
        }
    }

    /// Executes a command that only changes this state. The replies are those of globus-gridftp-server 13.24.
    pub fn settle(&mut self, setting: Setting) -> Settled {
        let mut channels = Channels::Keep;
        let reply = match setting {
            Setting::Type(representation) => {
                self.settings.representation = representation;
                Reply::new(
                    200,
                    format!("Type set to {}.", letter_of_type(representation)),
                )
            }
            Setting::Mode(mode) => {
                channels = self.set_mode(mode);
                Reply::new(200, format!("Mode set to {}.", letter_of_mode(mode)))
            }
            Setting::Structure => Reply::new(200, "STRU F ok."),
            Setting::Buffers(bytes) => {
                self.settings.set_buffer(BufferSide::Both, bytes);
                Reply::new(200, "SBUF Command Successful.")
            }
            Setting::SiteBuffers { verb, bytes } => {
                self.settings.set_buffer(verb.side(), bytes);
                Reply::new(200, "Site Command Successful.")
            }
            Setting::Markers { event, seconds } => {
                self.settings.set_interval(event, seconds);
                Reply::new(200, "Command Successful.")
            }
            Setting::Allocation(bytes) => {
                self.next.promised = Some(bytes);
                Reply::new(200, "ALLO command successful.")
            }
            Setting::Restart(restart) => self.set_restart(&restart),
            Setting::OnlyEpsv => {
                self.settings.epsv_only = true;
                Reply::new(229, "EPSV ALL Successful.")
            }
            Setting::Options(options) => self.settings.set_options(&options),
            Setting::Authentication(authentication) => {
                let (reply, changed) = self.security.authenticate_channels(&authentication);
                if changed {
                    channels = self.security_changed();
                }
                reply
            }
            Setting::Protection(protection) => {
                let (reply, changed) = self.security.set_protection(protection);
                if changed {
                    channels = self.security_changed();
                }
                reply
            }
        };
        Settled { reply, channels }
    }

    /// `SITE SETNETSTACK`. The caller has checked the stack.
    pub fn set_stack(&mut self, stack: StackRequest) -> Channels {
        self.settings.stack = stack;
        self.security_changed()
    }

    /// The control channel is protected by this mechanism from now on.
    pub fn authenticated(&mut self, mechanism: Mechanism) {
        self.security.authenticated(mechanism);
    }

    /// `DCSC` was executed: data channels use a separate credential, or no longer.
    pub fn set_own_credential(&mut self, own: bool) -> Channels {
        self.security.set_own_credential(own);
        self.security_changed()
    }

    /// The security of data channels.
    ///
    /// # Errors
    ///
    /// When the client's settings contradict each other, or the administrator forbids them.
    pub fn data_security(&self) -> Result<DataSecurity, Refusal> {
        self.security.of_channels()
    }

    /// Existing channels and listeners can no longer be used.
    fn security_changed(&mut self) -> Channels {
        self.port = DataPort::None;
        Channels::Release
    }

    /// `SCKS`. The caller has checked the algorithm.
    pub fn expect_checksum(&mut self, algorithm: AlgorithmName, checksum: Checksum) {
        self.next.expected = Some((algorithm, checksum));
    }

    /// `SITE STORATTR`. The caller has checked the algorithm.
    pub fn set_store_attributes(&mut self, attributes: StoreAttributes) {
        self.next.attributes = attributes;
    }

    /// `RNFR`. The caller has checked that the file exists.
    pub fn rename_from(&mut self, path: RemotePath) {
        self.first_half = Some(FirstHalf::RenameFrom(path));
    }

    /// `RNTO`: the file to rename.
    ///
    /// # Errors
    ///
    /// Without a preceding `RNFR`.
    pub fn take_rename_from(&mut self) -> Result<RemotePath, Refusal> {
        match self.first_half.take() {
            Some(FirstHalf::RenameFrom(path)) => Ok(path),
            _ => Err(Refusal::NoFirstHalf("RNFR")),
        }
    }

    /// `SITE SYMLINKFROM`.
    pub fn symlink_from(&mut self, target: PathArgument) {
        self.first_half = Some(FirstHalf::SymlinkFrom(target));
    }

    /// `SITE SYMLINKTO`: the target of the link.
    ///
    /// # Errors
    ///
    /// Without a preceding `SITE SYMLINKFROM`.
    pub fn take_symlink_from(&mut self) -> Result<PathArgument, Refusal> {
        match self.first_half.take() {
            Some(FirstHalf::SymlinkFrom(target)) => Ok(target),
            _ => Err(Refusal::NoFirstHalf("SITE SYMLINKFROM")),
        }
    }

    /// A transfer command: returns the terms of the transfer, and resets the parameters of the next one.
    ///
    /// # Errors
    ///
    /// When there is no data port for this direction, or the restart is not possible in stream mode. The parameters are reset in
    /// this case too; the data port stays.
    pub fn begin(&mut self, direction: Direction) -> Result<Terms, Refusal> {
        let pending = mem::take(&mut self.next);
        let mode = self.settings.mode;
        let delayed = self.port.check(mode, direction)?;
        if mode == TransferMode::Stream && !is_prefix(&pending.restart) {
            return Err(Refusal::RestartWithHoles);
        }
        Ok(Terms {
            mode,
            representation: self.representation(),
            pending,
            delayed,
        })
    }

    /// The representation of files on data channels.
    fn representation(&self) -> Representation {
        match self.settings.mode {
            TransferMode::Stream => self.settings.representation,
            // GFD.20 3.4: offsets of blocks count the bytes of the file.
            TransferMode::Extended => Representation::Image,
        }
    }

    /// Whether `SIZE` can return the number of bytes that `RETR` would send.
    ///
    /// # Errors
    ///
    /// In TYPE A and stream mode, where the file would have to be read.
    pub fn check_size(&self) -> Result<(), Refusal> {
        match self.representation() {
            Representation::Image => Ok(()),
            Representation::Ascii => Err(Refusal::SizeOfText),
        }
    }

    /// `PASV`, `EPSV`, `SPAS` or `RPSV`.
    ///
    /// # Errors
    ///
    /// After `EPSV ALL` for other commands than `EPSV`; and as [`Negotiated::data_security`].
    pub fn passive(&mut self, request: PassiveRequest) -> Result<Passive, Refusal> {
        self.data_security()?;
        if self.settings.epsv_only && !matches!(request, PassiveRequest::Epsv(_)) {
            return Err(Refusal::EpsvOnly);
        }
        if self.settings.delayed_passive {
            self.port = DataPort::Delayed(request);
            return Ok(Passive::Delay);
        }
        self.port = DataPort::None;
        Ok(Passive::Listen {
            striped: self.may_stripe(request),
        })
    }

    /// Whether the reply to this request may contain several addresses at present.
    pub fn may_stripe(&self, request: PassiveRequest) -> bool {
        let is_extended = self.settings.mode == TransferMode::Extended;
        is_extended && matches!(request, PassiveRequest::Spas(_))
    }

    /// The session listens on `stripes` addresses.
    pub fn listening(&mut self, stripes: usize) {
        self.port = DataPort::passive(stripes);
    }

    /// `PORT`, `EPRT` or `SPOR`. The session has checked the addresses.
    ///
    /// # Errors
    ///
    /// After `EPSV ALL`, or with several addresses in stream mode; and as [`Negotiated::data_security`].
    pub fn active(&mut self, addresses: &StripeAddresses) -> Result<(), Refusal> {
        self.data_security()?;
        if self.settings.epsv_only {
            return Err(Refusal::EpsvOnly);
        }
        let stripes = addresses.as_slice().len();
        if self.settings.mode == TransferMode::Stream && stripes > 1 {
            return Err(Refusal::StripesNeedExtendedMode);
        }
        self.port = DataPort::active(stripes);
        Ok(())
    }

    /// Listening or preparing to connect failed.
    pub fn port_failed(&mut self) {
        self.port = DataPort::None;
    }

    /// A transfer that [`Negotiated::begin`] accepted has ended.
    pub fn finish(&mut self, end: TransferEnd) -> Channels {
        self.port.finish(self.settings.mode, end)
    }

    fn set_mode(&mut self, mode: TransferMode) -> Channels {
        if mem::replace(&mut self.settings.mode, mode) == mode {
            return Channels::Keep;
        }
        self.port.mode_changed()
    }

    fn set_restart(&mut self, restart: &Restart) -> Reply {
        self.next.restart = restart.present();
        // Any 3yz is accepted; globus-url-copy 10.12 treats a 2yz as an error.
        Reply::new(
            350,
            "Restart Marker OK. Send STORE or RETR to initiate transfer.",
        )
    }
}

/// Whether the bytes that are present are a prefix of the file.
fn is_prefix(present: &RangeSet) -> bool {
    present.is_empty() || present.contains(&(0..present.end()))
}

fn letter_of_type(representation: Representation) -> char {
    match representation {
        Representation::Ascii => 'A',
        Representation::Image => 'I',
    }
}

fn letter_of_mode(mode: TransferMode) -> char {
    match mode {
        TransferMode::Stream => 'S',
        TransferMode::Extended => 'E',
    }
}

#[cfg(test)]
mod tests;
