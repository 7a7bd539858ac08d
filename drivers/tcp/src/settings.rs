//! The driver's options, and their application to sockets.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use gridhaul_stack::options::{self, Audience, OptionDoc, OptionKind, Options};
use gridhaul_stack::{BufferSize, SocketOptions, StackError};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::socket::set_max_pacing_rate;

/// The values of the options.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) ports: Option<PortRange>,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) advertise: Option<IpAddr>,
    send_buffer: Option<BufferSize>,
    receive_buffer: Option<BufferSize>,
    congestion_control: Option<String>,
    no_delay: bool,
    keep_alive: KeepAlive,
    /// In bytes per second.
    rate: Option<u64>,
}

/// A range of ports, both ends included; `first <= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepAlive {
    Off,
    /// With the machine's default times.
    On,
    /// After this idle time, and with this interval between probes.
    Every(Duration),
}

/// The audience of options for addresses and ports.
const PLACES: Audience =
    Audience::Administrator("it says where the sockets of the server are, or what they claim");

/// The audience of buffer sizes. The kernel grants at most `net.core.rmem_max` and `net.core.wmem_max`, which the administrator
/// of the machine sets, so the bound is the largest valid value.
const BUFFERS: Audience = Audience::ClientUpTo {
    most: "1G",
    or: &["auto"],
};

/// The options of every driver over TCP. See the table in the crate's documentation.
pub const OPTIONS: [OptionDoc; 10] = [
    OptionDoc::new(
        "port",
        OptionKind::Word,
        // A client could take the ports of other services, or those that a firewall lets in.
        PLACES,
        "The ports to listen at, a range or a single one; any free port unless given.",
        "50000-51000",
    ),
    OptionDoc::new(
        "bind",
        OptionKind::Word,
        // A client could listen on networks without data connections, or connect from an address that other hosts trust.
        PLACES,
        "The local address to listen at and to connect from, instead of the session's.",
        "192.0.2.1",
    ),
    OptionDoc::new(
        "advertise",
        OptionKind::Word,
        // The reply would name another host as this server, also to the other server of a third-party copy.
        PLACES,
        "The address that peers are told to connect to, where it is another one (NAT).",
        "198.51.100.7",
    ),
    OptionDoc::new(
        "buffer",
        OptionKind::Bytes,
        BUFFERS,
        "The kernel's send and receive buffers in bytes, or auto.",
        "4M",
    ),
    OptionDoc::new(
        "sndbuf",
        OptionKind::Bytes,
        BUFFERS,
        "The kernel's send buffer in bytes, or auto.",
        "4M",
    ),
    OptionDoc::new(
        "rcvbuf",
        OptionKind::Bytes,
        BUFFERS,
        "The kernel's receive buffer in bytes, or auto.",
        "4M",
    ),
    OptionDoc::new(
        "cc",
        OptionKind::Word,
        // The kernel has a list of algorithms for unprivileged programs (net.ipv4.tcp_allowed_congestion_control).
        Audience::Client,
        "The congestion control.",
        "reno",
    ),
    OptionDoc::new(
        "nodelay",
        OptionKind::Word,
        // It affects only the client's own segments.
        Audience::Client,
        "Sends small segments at once; on unless given.",
        "on",
    ),
    OptionDoc::new(
        "keepalive",
        OptionKind::Time,
        // At most one segment per second. It does not prolong a connection: idle-timeout and stall-timeout end it.
        Audience::Client,
        "Asks a silent peer for a sign of life after so long; on takes the machine's times, off unless \
         given.",
        "60s",
    ),
    OptionDoc::new(
        "rate",
        OptionKind::Rate,
        // It can only make the client's own channels slower.
        Audience::Client,
        "Sends at most so many bits per second (with k, m or g) or bytes per second (without).",
        "5g",
    ),
];

/// The kernel stores buffer sizes in a signed integer, and doubles the requested size.
const MAX_BUFFER: u32 = 1 << 30;

impl Settings {
    /// Reads the options of a driver that documents [`OPTIONS`].
    ///
    /// # Errors
    ///
    /// When a value is wrong.
    pub fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let both = options.value("buffer", buffer_size)?;
        Ok(Self {
            ports: options.value("port", PortRange::parse)?,
            bind: options.value("bind", address)?,
            advertise: options.value("advertise", address)?,
            send_buffer: options.value("sndbuf", buffer_size)?.or(both),
            receive_buffer: options.value("rcvbuf", buffer_size)?.or(both),
            congestion_control: options.value("cc", congestion_control)?,
            no_delay: options.value("nodelay", options::switch)?.unwrap_or(true),
            keep_alive: options
                .value("keepalive", KeepAlive::parse)?
                .unwrap_or(KeepAlive::Off),
            rate: options.value("rate", options::rate)?,
        })
    }

    /// Creates a socket, and sets all options that must be set before it listens or connects. Accepted connections inherit
    /// them.
    pub(crate) fn socket(
        &self,
        address: &SocketAddr,
        session: &SocketOptions,
    ) -> io::Result<OwnedFd> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = stream_socket(family)?;
        let send_buffer = self.send_buffer.unwrap_or(session.send_buffer);
        if let Some(bytes) = in_bytes(send_buffer) {
            sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        }
        let receive_buffer = self.receive_buffer.unwrap_or(session.receive_buffer);
        if let Some(bytes) = in_bytes(receive_buffer) {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        if self.no_delay {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if let Some(name) = &self.congestion_control {
            sockopt::set_tcp_congestion(&socket, name)?;
        }
        if self.keep_alive != KeepAlive::Off {
            sockopt::set_socket_keepalive(&socket, true)?;
        }
        if let KeepAlive::Every(time) = self.keep_alive {
            sockopt::set_tcp_keepidle(&socket, time)?;
            sockopt::set_tcp_keepintvl(&socket, time)?;
        }
        if let Some(rate) = self.rate {
            set_max_pacing_rate(socket.as_fd(), rate)?;
        }
        Ok(socket)
    }
}

pub(crate) fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn in_bytes(size: BufferSize) -> Option<usize> {
    match size {
        BufferSize::Automatic => None,
        BufferSize::Bytes(bytes) => usize::try_from(bytes.min(MAX_BUFFER)).ok(),
    }
}

impl PortRange {
    fn parse(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| {
            options::number(text)
                .ok()
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port > 0)
        };
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            (Some(_), Some(_)) => Err("the range ends before it starts".to_owned()),
            _ => Err("ports are numbers from 1 to 65535".to_owned()),
        }
    }
}

impl KeepAlive {
    fn parse(text: &str) -> Result<Self, String> {
        const LIMITS: std::ops::RangeInclusive<u64> = 1..=32767;
        if let Ok(is_on) = options::switch(text) {
            return Ok(if is_on { Self::On } else { Self::Off });
        }
        match options::duration(text) {
            Ok(time) if LIMITS.contains(&time.as_secs()) => Ok(Self::Every(time)),
            _ => Err("it is neither on, off nor a time from 1s to 32767s".to_owned()),
        }
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_| "it is not an IPv4 or IPv6 address".to_owned())
}

fn buffer_size(text: &str) -> Result<BufferSize, String> {
    if text == "auto" {
        return Ok(BufferSize::Automatic);
    }
    match options::bytes(text).map(u32::try_from) {
        Ok(Ok(bytes @ 1..=MAX_BUFFER)) => Ok(BufferSize::Bytes(bytes)),
        _ => Err("it is neither auto nor a number of bytes from 1 to 1G".to_owned()),
    }
}

/// Tries the name on a socket, so that a wrong name is refused when the stack is built.
fn congestion_control(name: &str) -> Result<String, String> {
    let offer = || {
        let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        let allowed = allowed.unwrap_or_default();
        format!("this machine allows: {}", allowed.trim())
    };
    // The kernel's limit (TCP_CA_NAME_MAX), which truncates longer names.
    if name.is_empty() || name.len() >= 16 {
        return Err(offer());
    }
    let Ok(socket) = stream_socket(AddressFamily::INET) else {
        // Checked again when a data channel is opened.
        return Ok(name.to_owned());
    };
    sockopt::set_tcp_congestion(&socket, name)
        .map(|()| name.to_owned())
        .map_err(|_| offer())
}

#[cfg(test)]
mod tests {
    use gridhaul_stack::Driver as _;

    use super::*;
    use crate::Tcp;

    fn parse(options: &[(&str, &str)]) -> Result<Settings, StackError> {
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Settings::parse(&Tcp.read_options(&options)?)
    }

    #[test]
    fn ports_are_one_or_a_range() {
        let ports = |text| parse(&[("port", text)]).map(|settings| settings.ports);
        let range = |first, last| Some(PortRange { first, last });
        assert_eq!(ports("50000-51000"), Ok(range(50000, 51000)));
        assert_eq!(ports("2811"), Ok(range(2811, 2811)));
        for (text, reason) in [
            ("51000-50000", "the range ends before it starts"),
            ("0", "ports are numbers from 1 to 65535"),
            ("0-10", "ports are numbers from 1 to 65535"),
            ("65536", "ports are numbers from 1 to 65535"),
            ("1-2-3", "ports are numbers from 1 to 65535"),
            ("-", "ports are numbers from 1 to 65535"),
            ("+1", "ports are numbers from 1 to 65535"),
        ] {
            assert_eq!(
                ports(text).unwrap_err().to_string(),
                format!(
                    "the value {text:?} of the option port of the driver tcp is wrong: {reason}; \
                     an example is port=50000-51000"
                )
            );
        }
    }

    #[test]
    fn one_buffer_goes_before_both() {
        let settings = parse(&[("buffer", "1M"), ("sndbuf", "auto")]).unwrap();
        assert_eq!(settings.send_buffer, Some(BufferSize::Automatic));
        assert_eq!(settings.receive_buffer, Some(BufferSize::Bytes(1 << 20)));
        for wrong in ["0", "2G", "1T", "automatic"] {
            let error = parse(&[("rcvbuf", wrong)]).unwrap_err().to_string();
            assert!(error.contains("from 1 to 1G"), "{error}");
        }
    }

    #[test]
    fn a_congestion_control_must_be_allowed() {
        for wrong in ["nosuchcontrol", "reno-and-a-name-that-is-too-long"] {
            let error = parse(&[("cc", wrong)]).unwrap_err().to_string();
            assert!(error.contains("this machine allows: "), "{error}");
            assert!(error.contains("reno"), "{error}");
        }
    }

    #[test]
    fn keepalive_is_a_switch_or_a_time() {
        let keep_alive = |text| parse(&[("keepalive", text)]).map(|settings| settings.keep_alive);
        assert_eq!(keep_alive("on"), Ok(KeepAlive::On));
        assert_eq!(keep_alive("off"), Ok(KeepAlive::Off));
        let minute = KeepAlive::Every(Duration::from_secs(60));
        assert_eq!(keep_alive("60"), Ok(minute));
        assert_eq!(keep_alive("1m"), Ok(minute));
        for wrong in ["0", "500ms", "32768", "yes"] {
            assert!(keep_alive(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_stack_string_wins_over_the_session() {
        let session = SocketOptions {
            receive_buffer: BufferSize::Bytes(16384),
            send_buffer: BufferSize::Bytes(16384),
            ..SocketOptions::default()
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = parse(&[
            ("rcvbuf", "65536"),
            ("cc", "reno"),
            ("keepalive", "77s"),
            ("nodelay", "off"),
            ("rate", "1g"),
        ]);
        let socket = settings.unwrap().socket(&any, &session).unwrap();
        // Linux doubles both, for its overhead (socket(7)).
        assert_eq!(sockopt::socket_recv_buffer_size(&socket).unwrap(), 131_072);
        assert_eq!(sockopt::socket_send_buffer_size(&socket).unwrap(), 32768);
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "reno");
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let idle = sockopt::tcp_keepidle(&socket).unwrap();
        assert_eq!(idle, Duration::from_secs(77));
        assert!(!sockopt::tcp_nodelay(&socket).unwrap());
    }
}
