//! One error type for each kind of call, with a variant for each party that may be at fault.

use std::io;
use std::net::SocketAddr;

/// Why a driver stack could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// The driver is not in the administrator's allow-list. Clients look for this exact text.
    #[error("{0} driver not whitelisted")]
    NotAllowed(String),
    /// The administrator's rules do not let clients set the option, or not to this value.
    #[error(
        "the administrator lets no client set {option}={value} for the driver {driver}; clients may set {allowed}"
    )]
    OptionNotAllowed {
        /// The driver.
        driver: &'static str,
        /// The option.
        option: String,
        /// The requested value.
        value: String,
        /// The values that clients may set, or the options that they may set instead, and for an administrator's option the reason.
        allowed: String,
    },
    /// There is no such driver in this program.
    #[error("there is no driver {name:?}; the drivers are: {known}")]
    UnknownDriver {
        /// The requested value.
        name: String,
        /// The registered drivers.
        known: String,
    },
    /// The driver has no such option.
    #[error("the driver {driver} has no option {option:?}; {known}")]
    UnknownOption {
        /// The driver.
        driver: &'static str,
        /// The requested value.
        option: String,
        /// A phrase that lists the driver's options.
        known: String,
    },
    /// An option is repeated for a driver.
    #[error("the option {option} of the driver {driver} is given twice")]
    RepeatedOption {
        /// The driver.
        driver: &'static str,
        /// The option.
        option: &'static str,
    },
    /// An option's value is not valid, or not on this machine.
    #[error(
        "the value {value:?} of the option {option} of the driver {driver} is wrong: {reason}; \
         an example is {option}={example}"
    )]
    BadValue {
        /// The driver.
        driver: &'static str,
        /// The option.
        option: &'static str,
        /// The requested value.
        value: String,
        /// The reason.
        reason: String,
        /// A valid value.
        example: &'static str,
    },
    /// The stack is empty.
    #[error("the driver stack is empty; the drivers are: {known}")]
    NoTransport {
        /// The registered drivers.
        known: String,
    },
    /// The first driver makes no connections.
    #[error(
        "the driver {0} is not a transport and cannot come first; the stack starts with its transport, \
         as in tcp,{0}"
    )]
    TransformAtBottom(&'static str),
    /// A driver that is not the first makes connections.
    #[error("the driver {0} is a transport and must come first; there is one transport in a stack")]
    TransportAboveBottom(&'static str),
    /// An error on another machine, in its words.
    #[error("{0}")]
    Remote(String),
}

/// Why a call on a channel failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer or its host has reset the connection.
    #[error("connection reset by peer")]
    Aborted,
    /// The peer closed the channel while we were sending.
    #[error("the peer closed the data channel before all data was sent")]
    PeerClosed,
    /// [`crate::Cancel::cancel`] was called.
    #[error("the operation was aborted")]
    Cancelled,
    /// The operation's deadline passed.
    #[error("timed out")]
    DeadlineExceeded,
    /// Another error of the network.
    #[error("{0}")]
    Network(#[source] io::Error),
    /// The file of a range could not be read or written. Not the peer's fault.
    #[error("{0}")]
    File(#[source] io::Error),
    /// The file ended before the range did: it shrank while it was sent.
    #[error("the file ends at byte {end}, before the range that was to be sent")]
    FileTooShort {
        /// Where the file ended, in bytes.
        end: u64,
    },
    /// A transform found an error in the stream: a bad record, or a peer that does not speak its protocol.
    #[error("{driver}: {reason}")]
    Protocol {
        /// The driver that found it.
        driver: &'static str,
        /// The error.
        reason: String,
    },
    /// The peer authenticated to a transform with another identity than the expected one.
    #[error("{driver}: {reason}")]
    Refused {
        /// The driver that found it.
        driver: &'static str,
        /// The peer's identity and the expected one.
        reason: String,
    },
    /// An error on another machine that is none of its files, in its words.
    #[error("{0}")]
    Remote(String),
}

impl ChannelError {
    /// Classifies an error of a socket call.
    pub fn from_socket(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Aborted,
            io::ErrorKind::BrokenPipe => Self::PeerClosed,
            io::ErrorKind::TimedOut => Self::DeadlineExceeded,
            _ => Self::Network(error),
        }
    }
}

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Every port of the configured range is in use.
    #[error("no free port in the range {first}-{last}: all of them are in use")]
    PortRangeExhausted {
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
    },
    /// The transport cannot listen (`null`).
    #[error("the driver {0} cannot listen")]
    Unsupported(&'static str),
    /// The kernel refused the address or the socket.
    #[error("cannot listen at {address}: {error}")]
    Network {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
    /// An error on another machine, in its words.
    #[error("{0}")]
    Remote(String),
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer refused, or cannot be reached.
    #[error("unable to connect to {peer}: {error}")]
    Peer {
        /// The peer's address.
        peer: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
    /// A local setting prevents the connection (bind address, option).
    #[error("cannot prepare a connection to {peer}: {error}")]
    Local {
        /// The peer's address.
        peer: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
    /// Cancelled, timed out, or a transform refused the connection.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// Why no connection was accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// A connection failed before it was accepted (reset, refused by a transform). The listener can still be used.
    #[error("a connection from {peer} failed: {error}")]
    Connection {
        /// The peer's address.
        peer: SocketAddr,
        /// Its error.
        error: ChannelError,
    },
    /// The listener itself failed, was cancelled, or its deadline passed.
    #[error(transparent)]
    Listener(#[from] ChannelError),
}
