//! Which priorities a network interface pauses (PFC, IEEE 802.1Qbb). sysfs does not show that; the kernel tells it over netlink, to any
//! user (`dcbnl.c` of the kernel; numbers from linux/dcbnl.h and linux/rtnetlink.h).

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

// linux/netlink.h
const HEADER: usize = 16;
const IS_REQUEST: u16 = 1;
const IS_ERROR: u16 = 2;
/// The bits of an attribute's type that are no flags.
const TYPE: u16 = 0x3fff;

// linux/rtnetlink.h
const GET_DCB: u16 = 78;

// linux/dcbnl.h
const IEEE_GET: u8 = 21;
const INTERFACE: u16 = 1;
const IEEE: u16 = 13;
const PFC: u16 = 2;
/// `struct dcbmsg`
const DCB_HEADER: usize = 4;

/// The priorities that are paused. `None` if the driver has no such setting.
///
/// # Errors
///
/// When the kernel has no netlink, the interface does not exist, or the answer is none.
pub(super) fn paused(interface: &str) -> io::Result<Option<Vec<u8>>> {
    const MOST_BYTES: usize = 8192;
    /// The kernel answers before `send` returns.
    const PATIENCE: Duration = Duration::from_secs(1);

    // The protocol of number 0 is NETLINK_ROUTE.
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    send(&socket, &request(interface), SendFlags::empty())?;
    let mut answer = vec![0; MOST_BYTES];
    let (count, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match parse(&answer[..count.min(MOST_BYTES)]) {
        Err(Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
        Ok(priorities) => Ok(priorities),
    }
}

/// Asks for the settings of IEEE 802.1Qaz of an interface.
fn request(interface: &str) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend([0, IEEE_GET, 0, 0]);
    attribute(
        &mut message,
        INTERFACE,
        &[interface.as_bytes(), b"\0"].concat(),
    );
    // A name of an interface has at most 15 bytes, and a longer one is refused by the kernel.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&GET_DCB.to_ne_bytes());
    message[6..8].copy_from_slice(&IS_REQUEST.to_ne_bytes());
    message
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// The set priorities in an answer; `None` if it has no setting of PFC.
fn parse(answer: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let length = number(answer, 0)? as usize;
    let message = answer.get(..length).ok_or(Errno::PROTO)?;
    let body = message.get(HEADER..).ok_or(Errno::PROTO)?;
    let kind = u16::from_ne_bytes([message[4], message[5]]);
    if kind == IS_ERROR {
        let code = number(body, 0)?.cast_signed();
        // errno(3): the kernel's numbers end there.
        return Err(match code {
            -4095..0 => Errno::from_raw_os_error(-code),
            _ => Errno::PROTO,
        });
    }
    let settings = body.get(DCB_HEADER..).ok_or(Errno::PROTO)?;
    let pfc = find(settings, IEEE).and_then(|settings| find(settings, PFC));
    // `struct ieee_pfc`: the number of priorities that may be paused, and a bit for each that is.
    let set = pfc.and_then(|pfc| pfc.get(1));
    Ok(set.map(|set| (0..8).filter(|bit| set & (1 << bit) != 0).collect()))
}

fn number(bytes: &[u8], place: usize) -> Result<u32, Errno> {
    let bytes = bytes.get(place..place + 4).ok_or(Errno::PROTO)?;
    Ok(u32::from_ne_bytes(
        bytes.try_into().map_err(|_| Errno::PROTO)?,
    ))
}

/// The value of the first attribute of this type.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?);
        let found = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?) & TYPE;
        let value = attributes.get(4..usize::from(length))?;
        if found == kind {
            return Some(value);
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An answer as the kernel sends it: the name, and the settings with one before PFC.
    fn answer(set: u8) -> Vec<u8> {
        let mut settings = Vec::new();
        attribute(&mut settings, 1, &[0; 10]);
        attribute(&mut settings, PFC, &[8, set, 0, 0, 0, 0]);
        let mut message = vec![0; HEADER];
        message.extend([0, IEEE_GET, 0, 0]);
        attribute(&mut message, INTERFACE, b"eth2\0");
        attribute(&mut message, IEEE | 0x8000, &settings);
        finished(message, GET_DCB)
    }

    fn finished(mut message: Vec<u8>, kind: u16) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message
    }

    #[test]
    fn an_answer_has_a_bit_for_each_priority() {
        assert_eq!(parse(&answer(0b1000_1000)), Ok(Some(vec![3, 7])));
        assert_eq!(parse(&answer(0)), Ok(Some(vec![])));
        let mut error = vec![0; HEADER];
        error.extend((-95_i32).to_ne_bytes());
        assert_eq!(parse(&finished(error, IS_ERROR)), Err(Errno::OPNOTSUPP));
        let empty = finished([&[0; HEADER][..], &[0, IEEE_GET, 0, 0]].concat(), GET_DCB);
        assert_eq!(parse(&empty), Ok(None));
        assert_eq!(parse(b""), Err(Errno::PROTO));
    }

    /// No interface of a test has a driver with PFC.
    #[test]
    fn the_kernel_is_asked() {
        assert!(!matches!(paused("lo"), Ok(Some(_))));
        assert!(!matches!(
            paused("no-such-interface-with-this-name"),
            Ok(Some(_))
        ));
    }

    proptest! {
        #[test]
        fn a_damaged_answer_is_an_error_or_a_list(place in 0..60_usize, byte: u8, cut in 0..60_usize) {
            let mut bytes = answer(0xff);
            let length = bytes.len();
            bytes[place % length] = byte;
            let _ = parse(&bytes);
            let _ = parse(&bytes[..cut.min(length)]);
        }
    }
}
