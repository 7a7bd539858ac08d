//! One error for each kind of call, split by the party at fault.

use std::io;
use std::net::SocketAddr;

/// Why a driver stack could not be built. Nothing was opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// The administrator's allow-list does not have the driver. Clients look for these very words.
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
        /// What was asked for.
        value: String,
        /// What clients may set of it, or instead of it, and why the option is not for them if it is the administrator's.
        allowed: String,
    },
    /// There is no such driver in this program.
    #[error("there is no driver {name:?}; the drivers are: {known}")]
    UnknownDriver {
        /// What was asked for.
        name: String,
        /// The drivers there are.
        known: String,
    },
    /// The driver has no such option.
    #[error("the driver {driver} has no option {option:?}; {known}")]
    UnknownOption {
        /// The driver.
        driver: &'static str,
        /// What was asked for.
        option: String,
        /// A phrase that lists the options there are.
        known: String,
    },
    /// An option stands twice behind one driver.
    #[error("the option {option} of the driver {driver} is given twice")]
    RepeatedOption {
        /// The driver.
        driver: &'static str,
        /// The option.
        option: &'static str,
    },
    /// An option's value makes no sense, or not on this machine.
    #[error(
        "the value {value:?} of the option {option} of the driver {driver} is wrong: {reason}; \
         an example is {option}={example}"
    )]
    BadValue {
        /// The driver.
        driver: &'static str,
        /// The option.
        option: &'static str,
        /// What was asked for.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// A value that is right.
        example: &'static str,
    },
    /// The stack is empty.
    #[error("the driver stack is empty; the drivers are: {known}")]
    NoTransport {
        /// The drivers there are.
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
}

/// Why a call on a channel failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer threw the connection away, or its host did (a TCP reset).
    #[error("connection reset by peer")]
    Aborted,
    /// The peer no longer takes data: it closed the channel while we were sending.
    #[error("the peer closed the data channel before all data was sent")]
    PeerClosed,
    /// [`crate::Cancel::cancel`] was called.
    #[error("the operation was aborted")]
    Cancelled,
    /// The operation's deadline passed.
    #[error("timed out")]
    DeadlineExceeded,
    /// The network below failed in another way.
    #[error("{0}")]
    Network(#[source] io::Error),
    /// The file end of a file range could not be read or written. The peer is not to blame.
    #[error("{0}")]
    File(#[source] io::Error),
    /// The file ended before the range did: it shrank while it was sent.
    #[error("the file ends at byte {end}, before the range that was to be sent")]
    FileTooShort {
        /// Where the file ended, in bytes.
        end: u64,
    },
    /// A transform found the stream to be wrong: a bad record, a peer that does not speak the
    /// transform.
    #[error("{driver}: {reason}")]
    Protocol {
        /// The driver that says so.
        driver: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// The peer proved to a transform who it is, and is not who it must be.
    #[error("{driver}: {reason}")]
    Refused {
        /// The driver that says so.
        driver: &'static str,
        /// Who the peer is, and who it must be.
        reason: String,
    },
}

impl ChannelError {
    /// Sorts an error of a socket call.
    pub fn from_socket(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Aborted,
            io::ErrorKind::BrokenPipe => Self::PeerClosed,
            io::ErrorKind::TimedOut => Self::DeadlineExceeded,
            _ => Self::Network(error),
        }
    }
}

/// Why a listener could not be made.
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
    /// The kernel refused.
    #[error("cannot listen at {address}: {error}")]
    Network {
        /// The address that was asked for.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer refused, or cannot be reached.
    #[error("unable to connect to {peer}: {error}")]
    Peer {
        /// Who was called.
        peer: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
    /// A local setting stood in the way (bind address, option).
    #[error("cannot prepare a connection to {peer}: {error}")]
    Local {
        /// Who was to be called.
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
    /// One connection failed on its way in (reset, refused by a transform); the listener goes on.
    #[error("a connection from {peer} failed: {error}")]
    Connection {
        /// Who called.
        peer: SocketAddr,
        /// What was wrong with it.
        error: ChannelError,
    },
    /// The listener itself failed, was cancelled, or its deadline passed.
    #[error(transparent)]
    Listener(#[from] ChannelError),
}
