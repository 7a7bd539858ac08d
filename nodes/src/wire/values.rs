//! Small values: addresses, paths, times, ranges.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridhaul_protocol::ranges::{MAX_OFFSET, RangeSet};
use gridhaul_stack::{BufferSize, SocketOptions};

use crate::generated as message;
use crate::limits::RANGES;

/// A message that makes no value.
#[derive(Debug, thiserror::Error)]
#[error("the other end sent {0}")]
pub(crate) struct WireError(pub(crate) String);

/// The longest path, in bytes: that of the kernel (`PATH_MAX`).
const PATH_BYTES: usize = 4096;

impl WireError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self(format!("a message without '{field}'"))
    }
}

pub(crate) fn ip(address: IpAddr) -> message::IpAddress {
    message::IpAddress {
        octets: match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        },
    }
}

pub(crate) fn to_ip(address: &message::IpAddress) -> Result<IpAddr, WireError> {
    let octets = address.octets.as_slice();
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Ok(octets.into());
    }
    match <[u8; 16]>::try_from(octets) {
        Ok(octets) => Ok(octets.into()),
        Err(_) => Err(WireError(format!("an address of {} bytes", octets.len()))),
    }
}

pub(crate) fn address(address: SocketAddr) -> message::SocketAddress {
    message::SocketAddress {
        address: Some(ip(address.ip())),
        port: address.port().into(),
    }
}

pub(crate) fn to_address(address: &message::SocketAddress) -> Result<SocketAddr, WireError> {
    let host = address
        .address
        .as_ref()
        .ok_or_else(|| WireError::missing("address"))?;
    let port = u16::try_from(address.port)
        .map_err(|_| WireError(format!("the port number {}", address.port)))?;
    Ok(SocketAddr::new(to_ip(host)?, port))
}

pub(crate) fn path(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

pub(crate) fn to_path(bytes: &[u8]) -> Result<PathBuf, WireError> {
    if bytes.len() > PATH_BYTES {
        return Err(WireError(format!("a path of {} bytes", bytes.len())));
    }
    if bytes.contains(&0) {
        return Err(WireError::new("a path with a NUL byte"));
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

pub(crate) fn time(time: SystemTime) -> message::Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => message::Time {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(error) => {
            let before = error.duration();
            // Rounded down, so that the nanoseconds count forwards.
            let (up, nanoseconds) = match before.subsec_nanos() {
                0 => (0, 0),
                nanoseconds => (1, 1_000_000_000 - nanoseconds),
            };
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX - 1);
            message::Time {
                seconds: -seconds - up,
                nanoseconds,
            }
        }
    }
}

pub(crate) fn to_time(time: message::Time) -> Result<SystemTime, WireError> {
    let wrong = || WireError(format!("the time {}.{:09}", time.seconds, time.nanoseconds));
    if time.nanoseconds >= 1_000_000_000 {
        return Err(wrong());
    }
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .ok_or_else(wrong)
}

pub(crate) fn ranges(ranges: &RangeSet) -> Vec<message::Range> {
    ranges
        .iter()
        .map(|range| message::Range {
            start: range.start,
            end: range.end,
        })
        .collect()
}

/// Ranges in portions that fit into a message, at least one; and whether further ones follow.
pub(crate) fn in_messages(all: &RangeSet) -> impl Iterator<Item = (Vec<message::Range>, bool)> {
    let mut portions: Vec<_> = ranges(all).chunks(RANGES).map(<[_]>::to_vec).collect();
    if portions.is_empty() {
        portions.push(Vec::new());
    }
    let last = portions.len() - 1;
    let portions = portions.into_iter().enumerate();
    portions.map(move |(index, portion)| (portion, index < last))
}

pub(crate) fn to_ranges(ranges: &[message::Range]) -> Result<RangeSet, WireError> {
    if ranges.len() > RANGES {
        return Err(WireError(format!("{} ranges", ranges.len())));
    }
    let mut set = RangeSet::new();
    for range in ranges {
        // In order, so that no sender can make this slow.
        if range.start >= range.end || range.end > MAX_OFFSET || range.start < set.end() {
            return Err(WireError(format!(
                "the range {}-{}",
                range.start, range.end
            )));
        }
        set.insert(range.start..range.end);
    }
    Ok(set)
}

pub(crate) fn sockets(options: &SocketOptions) -> message::Sockets {
    let bytes = |size| match size {
        BufferSize::Automatic => None,
        BufferSize::Bytes(bytes) => Some(bytes),
    };
    message::Sockets {
        receive_buffer: bytes(options.receive_buffer),
        send_buffer: bytes(options.send_buffer),
    }
}

pub(crate) fn to_sockets(sockets: Option<message::Sockets>) -> SocketOptions {
    let size = |bytes: Option<u32>| bytes.map_or(BufferSize::Automatic, BufferSize::Bytes);
    let sockets = sockets.unwrap_or_default();
    SocketOptions {
        receive_buffer: size(sockets.receive_buffer),
        send_buffer: size(sockets.send_buffer),
        // The node itself knows the rest once it is told the transfer.
        ..SocketOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_come_back(seconds in -1_000_000_i64..5_000_000_000, nanoseconds in 0_u32..1_000_000_000) {
            let sent = message::Time { seconds, nanoseconds };
            prop_assert_eq!(time(to_time(sent).expect("a time")), sent);
        }

        #[test]
        fn addresses_come_back(given: SocketAddr) {
            let SocketAddr::V4(_) = given else { return Ok(()) };
            prop_assert_eq!(to_address(&address(given)).expect("an address"), given);
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        to_ip(&message::IpAddress { octets: vec![1; 5] }).expect_err("5 bytes");
        to_path(b"a\0b").expect_err("NUL");
        to_path(&[b'a'; 5000]).expect_err("long");
        to_ranges(&[message::Range { start: 5, end: 5 }]).expect_err("empty");
        to_ranges(&[message::Range {
            start: 5,
            end: u64::MAX,
        }])
        .expect_err("large");
        let time = message::Time {
            seconds: i64::MAX,
            nanoseconds: 2_000_000_000,
        };
        to_time(time).expect_err("nanoseconds");
    }
}
