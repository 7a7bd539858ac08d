//! What a session and its client have agreed on, and what may follow what.
//!
//! [`Negotiated`] holds the settings that stay, the data port, and what waits for the next transfer or
//! for the second half of a pair of commands. It does nothing by itself: it tells the session what to do
//! ([`Channels::Release`], [`Passive::Listen`]) and what to refuse ([`Refusal`]), and the session tells
//! it what came of it.

mod port;
mod security;

use std::mem;
use std::time::Duration;

use crate::command::{
    AlgorithmName, BufferSide, Checksum, Command, EpsvRequest, MarkerEvent, OptsCommand,
    Parallelism, Representation, Restart, RetrieveOptions, SiteCommand, StackRequest,
    StoreAttributes, StripeLayout, Text, TransferMode,
};
use crate::facts::FactSelection;
use crate::path::{PathArgument, RemotePath};
use crate::ranges::RangeSet;
use crate::reply::Reply;

pub use port::{Direction, Passive, PassiveRequest, Refusal, TransferEnd};
pub use security::{DataPolicy, DataSecurity, Mechanism, PeerDemand};

use port::DataPort;
use security::Security;

/// The most data channels to each stripe; a client that asks for more gets as many.
pub const MAX_PARALLELISM: u8 = 64;

/// The state of one session.
#[derive(Debug, Clone, Default)]
pub struct Negotiated {
    settings: Settings,
    security: Security,
    port: DataPort,
    next: NextTransfer,
    /// `RNFR` and `SITE SYMLINKFROM`, until the next command but `NOOP`.
    first_half: Option<FirstHalf>,
}

/// What stays until the client changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `TYPE`.
    pub representation: Representation,
    /// `MODE`.
    pub mode: TransferMode,
    /// Data channels to each stripe when sending in MODE E: from 1 to [`MAX_PARALLELISM`].
    pub parallelism: u8,
    /// How a file is dealt out to stripes when sending in MODE E.
    pub layout: StripeLayout,
    /// The size of MODE E blocks when sending, in bytes, if the client has a wish.
    pub packet_bytes: Option<u64>,
    /// Socket buffers for sending files, in bytes; `None` leaves them to the system.
    pub retrieve_buffer_bytes: Option<u64>,
    /// Socket buffers for receiving files, in bytes; `None` leaves them to the system.
    pub store_buffer_bytes: Option<u64>,
    /// The time between `112` markers while receiving in MODE E; `None` is never.
    pub performance_interval: Option<Duration>,
    /// The time between `111` markers while receiving in MODE E; `None` is only at the end.
    pub restart_interval: Option<Duration>,
    /// The time between `112` markers while sending; `None` is never.
    pub retrieve_interval: Option<Duration>,
    /// The time between markers while a checksum is made; `None` is never.
    pub checksum_interval: Option<Duration>,
    /// `PASV`, `EPSV` and `SPAS` are answered 200, and the address comes with the transfer.
    pub delayed_passive: bool,
    /// `EPSV ALL` was sent: no other command may set a data port (RFC 2428 4).
    pub epsv_only: bool,
    /// `OPTS MLST`.
    pub facts: FactSelection,
    /// `SITE SETNETSTACK`.
    pub stack: StackRequest,
}

/// Between two markers, observed from globus-gridftp-server 13.24.
const MARKER_INTERVAL: Duration = Duration::from_secs(5);

impl Default for Settings {
    fn default() -> Self {
        Self {
            representation: Representation::default(),
            mode: TransferMode::default(),
            parallelism: 1,
            layout: StripeLayout::default(),
            packet_bytes: None,
            retrieve_buffer_bytes: None,
            store_buffer_bytes: None,
            performance_interval: Some(MARKER_INTERVAL),
            restart_interval: Some(MARKER_INTERVAL),
            retrieve_interval: None,
            checksum_interval: None,
            delayed_passive: false,
            epsv_only: false,
            facts: FactSelection::default(),
            stack: StackRequest::Default,
        }
    }
}

/// What the next transfer takes with it, whether it succeeds or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextTransfer {
    /// `REST`: bytes that the receiver has already.
    pub restart: RangeSet,
    /// `ALLO`: how many bytes will come.
    pub promised: Option<u64>,
    /// `SCKS`: the checksum that the stored file must have.
    pub expected: Option<(AlgorithmName, Checksum)>,
    /// `SITE STORATTR`.
    pub attributes: StoreAttributes,
}

/// How a transfer that may begin is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// `MODE`.
    pub mode: TransferMode,
    /// `TYPE`; always [`Representation::Image`] in MODE E, whose offsets count the bytes of the file.
    pub representation: Representation,
    /// What waited for this transfer.
    pub pending: NextTransfer,
    /// The data port was delayed: the session listens now, calls [`Negotiated::listening`], and sends
    /// the address in a 127 or 129 first.
    pub delayed: Option<PassiveRequest>,
}

impl Terms {
    /// Whether a file can be transferred under these terms.
    ///
    /// # Errors
    ///
    /// When a restart waited for it, and TYPE A is to be sent or received.
    pub fn check_file(&self) -> Result<(), Refusal> {
        if self.representation == Representation::Ascii && !self.pending.restart.is_empty() {
            return Err(Refusal::RestartOfText);
        }
        Ok(())
    }

    /// Whether a file can be received that is not there yet.
    ///
    /// # Errors
    ///
    /// When a restart waited for it.
    pub fn check_new_file(&self) -> Result<(), Refusal> {
        if !self.pending.restart.is_empty() {
            return Err(Refusal::RestartOfNewFile);
        }
        Ok(())
    }
}

/// What becomes of the data channels and listeners that the session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Channels {
    /// They stay.
    Keep,
    /// They are closed.
    Release,
}

/// What came of a command that needs nothing but this state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The answer.
    pub reply: Reply,
    /// What becomes of data channels.
    pub channels: Channels,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FirstHalf {
    RenameFrom(RemotePath),
    SymlinkFrom(PathArgument),
}

impl Negotiated {
    /// A session that begins.
    pub fn new(policy: DataPolicy) -> Self {
        Self {
            security: Security::new(policy),
            ..Self::default()
        }
    }

    /// What the client has set.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes notice of a command, before anything is done about it: only `NOOP` may stand between
    /// `RNFR` and `RNTO`, and between `SITE SYMLINKFROM` and `SITE SYMLINKTO`.
    pub fn observe(&mut self, command: &Command) {
        match command {
            Command::Noop | Command::Rnto(_) | Command::Site(SiteCommand::SymlinkTo(_)) => {}
            _ => self.first_half = None,
        }
    }

    /// Carries out a command that needs nothing but this state: `TYPE`, `MODE`, `STRU`, `SBUF`, `TREV`,
    /// `ALLO`, `REST`, `EPSV ALL`, `DCAU`, `PBSZ`, `PROT`, `SITE RETRBUFSIZE` and its kin, and `OPTS`.
    /// The answers are those of globus-gridftp-server 13.24. `None` is for other commands.
    pub fn settle(&mut self, command: &Command) -> Option<Settled> {
        let mut channels = Channels::Keep;
        let reply = match command {
            Command::Type(representation) => {
                self.settings.representation = *representation;
                Reply::new(
                    200,
                    format!("Type set to {}.", letter_of_type(*representation)),
                )
            }
            Command::Mode(mode) => {
                channels = self.set_mode(*mode);
                Reply::new(200, format!("Mode set to {}.", letter_of_mode(*mode)))
            }
            Command::Stru => Reply::new(200, "STRU F ok."),
            Command::Sbuf(bytes) => {
                self.set_buffer(BufferSide::Both, *bytes);
                Reply::new(200, "SBUF Command Successful.")
            }
            Command::Site(SiteCommand::BufferSize { verb, bytes }) => {
                self.set_buffer(verb.side(), *bytes);
                Reply::new(200, "Site Command Successful.")
            }
            Command::Trev { event, seconds } => {
                match event {
                    MarkerEvent::Performance => {
                        self.settings.performance_interval = interval(*seconds);
                    }
                    MarkerEvent::Restart => self.settings.restart_interval = interval(*seconds),
                }
                Reply::new(200, "Command Successful.")
            }
            Command::Allo { bytes, .. } => {
                self.next.promised = Some(*bytes);
                Reply::new(200, "ALLO command successful.")
            }
            Command::Rest(restart) => self.set_restart(restart),
            Command::Epsv(EpsvRequest::All) => {
                self.settings.epsv_only = true;
                Reply::new(229, "EPSV ALL Successful.")
            }
            Command::Opts(options) => self.set_options(options),
            Command::Dcau(_) | Command::Pbsz(_) | Command::Prot(_) => {
                let (reply, changed) = self.security.settle(command)?;
                if changed {
                    channels = self.security_changed();
                }
                reply
            }
            _ => return None,
        };
        Some(Settled { reply, channels })
    }

    /// `SITE SETNETSTACK`, after the stack was found to be possible.
    pub fn set_stack(&mut self, stack: StackRequest) -> Channels {
        self.settings.stack = stack;
        self.security_changed()
    }

    /// The control channel is protected from now on.
    pub fn authenticated(&mut self, mechanism: Mechanism) {
        self.security.authenticated(mechanism);
    }

    /// `DCSC` was obeyed: data channels have a credential of their own, or no longer.
    pub fn set_own_credential(&mut self, own: bool) -> Channels {
        self.security.set_own_credential(own);
        self.security_changed()
    }

    /// How data channels are to be made now.
    ///
    /// # Errors
    ///
    /// When what the client set makes no sense together, or the administrator forbids it.
    pub fn data_security(&self) -> Result<DataSecurity, Refusal> {
        self.security.of_channels()
    }

    /// No channel or listener that is there fits any more.
    fn security_changed(&mut self) -> Channels {
        self.port = DataPort::None;
        Channels::Release
    }

    /// `SCKS`, after the algorithm was found to be known.
    pub fn expect_checksum(&mut self, algorithm: AlgorithmName, checksum: Checksum) {
        self.next.expected = Some((algorithm, checksum));
    }

    /// `SITE STORATTR`, after the algorithm was found to be known.
    pub fn set_store_attributes(&mut self, attributes: StoreAttributes) {
        self.next.attributes = attributes;
    }

    /// `RNFR`, after the file was found to be there.
    pub fn rename_from(&mut self, path: RemotePath) {
        self.first_half = Some(FirstHalf::RenameFrom(path));
    }

    /// `RNTO`: what is to be renamed.
    ///
    /// # Errors
    ///
    /// When no `RNFR` came before.
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

    /// `SITE SYMLINKTO`: what the link is to point to.
    ///
    /// # Errors
    ///
    /// When no `SITE SYMLINKFROM` came before.
    pub fn take_symlink_from(&mut self) -> Result<PathArgument, Refusal> {
        match self.first_half.take() {
            Some(FirstHalf::SymlinkFrom(target)) => Ok(target),
            _ => Err(Refusal::NoFirstHalf("SITE SYMLINKFROM")),
        }
    }

    /// A transfer command came: takes all that waited for it, and tells how the transfer is to be done.
    ///
    /// # Errors
    ///
    /// When there is no data port, or not one for this direction, or the restart cannot be done in
    /// stream mode. What waited is gone all the same; the data port stays.
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

    /// How bytes of files are represented on data channels.
    fn representation(&self) -> Representation {
        match self.settings.mode {
            TransferMode::Stream => self.settings.representation,
            // GFD.20 3.4: offsets of blocks count the bytes of the file.
            TransferMode::Extended => Representation::Image,
        }
    }

    /// Whether `SIZE` can tell how much `RETR` would send.
    ///
    /// # Errors
    ///
    /// In TYPE A and stream mode: the file would have to be read.
    pub fn check_size(&self) -> Result<(), Refusal> {
        match self.representation() {
            Representation::Image => Ok(()),
            Representation::Ascii => Err(Refusal::SizeOfText),
        }
    }

    fn set_mode(&mut self, mode: TransferMode) -> Channels {
        if mem::replace(&mut self.settings.mode, mode) == mode {
            return Channels::Keep;
        }
        self.port.mode_changed()
    }

    fn set_buffer(&mut self, side: BufferSide, bytes: u64) {
        let bytes = Some(bytes).filter(|&bytes| bytes != 0);
        if side != BufferSide::Store {
            self.settings.retrieve_buffer_bytes = bytes;
        }
        if side != BufferSide::Retrieve {
            self.settings.store_buffer_bytes = bytes;
        }
    }

    fn set_restart(&mut self, restart: &Restart) -> Reply {
        self.next.restart = restart.present();
        // Any 3yz will do; globus-url-copy 10.12 takes a 2yz for an error.
        Reply::new(
            350,
            "Restart Marker OK. Send STORE or RETR to initiate transfer.",
        )
    }

    fn set_options(&mut self, options: &OptsCommand) -> Reply {
        match options {
            OptsCommand::Retrieve(options) => self.set_retrieve_options(options),
            OptsCommand::DelayedPassive(allowed) => self.settings.delayed_passive = *allowed,
            OptsCommand::ChecksumMarkers(seconds) => {
                self.settings.checksum_interval = interval(*seconds);
            }
            OptsCommand::Facts(names) => {
                let names = names.iter().map(Text::as_str);
                self.settings.facts = FactSelection::from_names(names);
                // RFC 3659 7.9: the reply names the facts that will be shown.
                let text = format!("MLST OPTS {}", self.settings.facts);
                return Reply::new(200, text.trim_end());
            }
            OptsCommand::Utf8(true) => {}
            OptsCommand::Utf8(false) => {
                return Reply::new(
                    504,
                    "UTF8 cannot be switched off: names are sent as they are.",
                );
            }
        }
        Reply::new(200, "OPTS Command Successful.")
    }

    fn set_retrieve_options(&mut self, options: &RetrieveOptions) {
        let settings = &mut self.settings;
        if let Some(Parallelism { starting, .. }) = options.parallelism {
            let channels = u8::try_from(starting).unwrap_or(MAX_PARALLELISM);
            settings.parallelism = channels.clamp(1, MAX_PARALLELISM);
        }
        if let Some(layout) = options.layout {
            settings.layout = layout;
        }
        if let Some(seconds) = options.marker_seconds {
            settings.retrieve_interval = interval(seconds);
        }
        if options.packet_bytes.is_some() {
            settings.packet_bytes = options.packet_bytes;
        }
    }
}

fn interval(seconds: u32) -> Option<Duration> {
    (seconds != 0).then(|| Duration::from_secs(seconds.into()))
}

/// Whether what is there already is the beginning of the file and nothing else.
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
