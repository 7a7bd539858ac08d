//! The handshake on the data connection before the first RDMA operation.
//!
//! The connecting end offers and tells what it knows about the path; the accepting end chooses. Both
//! stay within their own limits. Then each end sends the address of its first ring, and the queue pairs are connected. An end that
//! cannot continue sends the reason, which the other end logs.

mod encoding;
mod inline;
mod method;
mod record;

use std::os::fd::OwnedFd;

use gridhaul_stack::exact::{ReadError, read_exact, write_all};
use gridhaul_stack::{ChannelError, Operation};

use self::encoding::KIND_REFUSAL;
pub(crate) use self::inline::{MAX_INLINE_BYTES, USUAL_INLINE_BYTES, messages, pieces};
pub(crate) use self::method::{Method, Methods};
pub(crate) use self::record::{
    Answer, Arrival, Mode, Offer, PathRecord, Record, RingRecord, Token,
};

/// The header of every record: a name, the version, the kind, and the length of the rest.
const HEAD_BYTES: usize = 12;
const NAME: &[u8; 8] = b"GHRDMA\r\n";

/// The version of the handshake and of everything that follows it: the messages of the engine and the
/// notices that replace queue pairs. Both ends need the same.
pub const VERSION: u8 = 8;

/// The longest record that is accepted.
const MAX_RECORD_BYTES: usize = 1024;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the other end does not speak this protocol: is its stack rdma as well?")]
    Name,
    #[error("the other end speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u8),
    #[error("the other end sent a record of {0} bytes; {MAX_RECORD_BYTES} are the limit")]
    Length(usize),
    #[error("the other end sent an invalid record of the kind {0}")]
    Content(u8),
    #[error("the other end refused: {0}")]
    Refused(String),
}

/// Sends a record over a non-blocking socket.
///
/// # Errors
///
/// When the connection fails, or has no room until the deadline.
pub(crate) fn write(
    socket: &OwnedFd,
    record: &Record,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    write_all(socket, &record.encode(), operation)
}

/// Receives exactly one record. A refusal of the peer is an error. A peer of another version gets a refusal, whose header shows it
/// the version of this end.
///
/// # Errors
///
/// When the other end does not speak the protocol, refuses, or is silent until the deadline.
pub(crate) fn read(socket: &OwnedFd, operation: &Operation<'_>) -> Result<Record, RecordError> {
    let mut head = [0; HEAD_BYTES];
    read_exact(socket, &mut head, operation)?;
    let [.., version, kind, high, low] = head;
    if !head.starts_with(NAME) {
        return Err(RecordError::Name);
    }
    if version != VERSION {
        let error = RecordError::Version(version);
        if kind != KIND_REFUSAL {
            // It is sent if possible; the reason of this end is what counts.
            let _ = write(socket, &Record::Refusal(error.to_string()), operation);
        }
        return Err(error);
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_RECORD_BYTES {
        return Err(RecordError::Length(length));
    }
    let mut content = vec![0; length];
    read_exact(socket, &mut content, operation)?;
    match Record::decode(kind, &content)? {
        Record::Refusal(reason) => Err(RecordError::Refused(reason)),
        record => Ok(record),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use gridhaul_stack::Cancel;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn another_version_is_named() {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: Some(Instant::now() + Duration::from_secs(10)),
            cancel: &cancel,
        };
        let mut bytes = Record::Ready.encode();
        bytes[NAME.len()] = 3;
        write_all(&theirs, &bytes, &operation).unwrap();
        let error = read(&ours, &operation).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the other end speaks version 3 of the protocol, this one version 8"
        );
        // The header is the same in all versions.
        let mut answer = [0; HEAD_BYTES];
        read_exact(&theirs, &mut answer, &operation).unwrap();
        assert_eq!(answer[..HEAD_BYTES - 2], *b"GHRDMA\r\n\x08\x04");
    }
}
