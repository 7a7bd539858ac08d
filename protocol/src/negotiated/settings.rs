//! The settings that stay until the client changes them.

use std::time::Duration;

use crate::command::{
    BufferSide, MarkerEvent, OptsCommand, Parallelism, Representation, RetrieveOptions,
    StackRequest, StripeLayout, Text, TransferMode,
};
use crate::facts::FactSelection;
use crate::reply::Reply;

/// The most data channels for each stripe; requests for more are reduced to it.
pub const MAX_PARALLELISM: u8 = 64;

/// The settings that stay until the client changes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `TYPE`.
    pub representation: Representation,
    /// `MODE`.
    pub mode: TransferMode,
    /// Data channels for each stripe when sending in MODE E: from 1 to [`MAX_PARALLELISM`].
    pub parallelism: u8,
    /// The distribution of a file to stripes when sending in MODE E.
    pub layout: StripeLayout,
    /// The size of MODE E blocks when sending, in bytes, if the client has set it.
    pub packet_bytes: Option<u64>,
    /// Socket buffers for sending files, in bytes; `None` is the system's default.
    pub retrieve_buffer_bytes: Option<u64>,
    /// Socket buffers for receiving files, in bytes; `None` is the system's default.
    pub store_buffer_bytes: Option<u64>,
    /// The time between `112` markers while receiving in MODE E; `None` is never.
    pub performance_interval: Option<Duration>,
    /// The time between `111` markers while receiving in MODE E; `None` is only at the end.
    pub restart_interval: Option<Duration>,
    /// The time between `112` markers while sending; `None` is never.
    pub retrieve_interval: Option<Duration>,
    /// The time between markers while a checksum is computed; `None` is never.
    pub checksum_interval: Option<Duration>,
    /// `PASV`, `EPSV` and `SPAS` are answered with 200, and the address is sent with the transfer.
    pub delayed_passive: bool,
    /// `EPSV ALL` was sent: no other command may set a data port (RFC 2428 4).
    pub epsv_only: bool,
    /// `OPTS MLST`.
    pub facts: FactSelection,
    /// `SITE SETNETSTACK`.
    pub stack: StackRequest,
}

/// The default time between markers, as in globus-gridftp-server 13.24.
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

impl Settings {
    /// `TREV`.
    pub(super) fn set_interval(&mut self, event: MarkerEvent, seconds: u32) {
        match event {
            MarkerEvent::Performance => self.performance_interval = interval(seconds),
            MarkerEvent::Restart => self.restart_interval = interval(seconds),
        }
    }

    pub(super) fn set_options(&mut self, options: &OptsCommand) -> Reply {
        match options {
            OptsCommand::Retrieve(options) => self.set_retrieve_options(options),
            OptsCommand::DelayedPassive(allowed) => self.delayed_passive = *allowed,
            OptsCommand::ChecksumMarkers(seconds) => {
                self.checksum_interval = interval(*seconds);
            }
            OptsCommand::Facts(names) => {
                let names = names.iter().map(Text::as_str);
                self.facts = FactSelection::from_names(names);
                // RFC 3659 7.9: the reply names the facts that will be shown.
                let text = format!("MLST OPTS {}", self.facts);
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
        if let Some(Parallelism { starting, .. }) = options.parallelism {
            let channels = u8::try_from(starting).unwrap_or(MAX_PARALLELISM);
            self.parallelism = channels.clamp(1, MAX_PARALLELISM);
        }
        if let Some(layout) = options.layout {
            self.layout = layout;
        }
        if let Some(seconds) = options.marker_seconds {
            self.retrieve_interval = interval(seconds);
        }
        if options.packet_bytes.is_some() {
            self.packet_bytes = options.packet_bytes;
        }
    }

    pub(super) fn set_buffer(&mut self, side: BufferSide, bytes: u64) {
        let bytes = Some(bytes).filter(|&bytes| bytes != 0);
        if side != BufferSide::Store {
            self.retrieve_buffer_bytes = bytes;
        }
        if side != BufferSide::Retrieve {
            self.store_buffer_bytes = bytes;
        }
    }
}

fn interval(seconds: u32) -> Option<Duration> {
    (seconds != 0).then(|| Duration::from_secs(seconds.into()))
}
