//! Messages with descriptors over UNIX sockets.
//!
//! Sockets preserve message boundaries (`SOCK_SEQPACKET`): each message is sent and received with one call, completely or not
//! at all. An empty message marks the end of the connection, so empty messages are not sent.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
};

/// The maximum number of descriptors in a message.
pub const MOST_DESCRIPTORS: usize = 16;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS));

/// A received message.
#[derive(Debug)]
pub enum Received {
    /// A message of this many bytes.
    Message(usize),
    /// The other end is closed.
    End,
}

/// A pair of connected sockets.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends a message with descriptors. Blocks while the socket buffer is full.
pub fn send(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    let message = [IoSlice::new(message)];
    retry_on_intr(|| rustix::net::sendmsg(&socket, &message, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a message into `buffer`, and its descriptors into `descriptors`: none of them if they exceed the limit of this
/// process.
///
/// # Errors
///
/// When a system call fails, or the message does not fit into `buffer` (`EMSGSIZE`). It is discarded then.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let before = descriptors.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The message itself is complete. Reaching the limit of descriptors must not break the connection.
        descriptors.truncate(before);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    match received.bytes {
        0 => Ok(Received::End),
        bytes => Ok(Received::Message(bytes)),
    }
}

/// Waits until a message or the end can be received; false if `within` has passed.
pub fn readable(socket: &OwnedFd, within: Duration) -> Result<bool, Errno> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn messages_stay_apart_and_carry_descriptors() {
        let (here, there) = pair().unwrap();
        let file = File::open("/dev/zero").unwrap();
        send(&here, b"one", &[]).unwrap();
        send(&here, b"other", &[file.as_fd(), file.as_fd()]).unwrap();
        drop(here);
        let mut buffer = [0; 16];
        let mut descriptors = Vec::new();
        let received = receive(&there, &mut buffer, &mut descriptors).unwrap();
        assert!(matches!(received, Received::Message(3)) && descriptors.is_empty());
        let received = receive(&there, &mut buffer, &mut descriptors).unwrap();
        assert!(matches!(received, Received::Message(5)));
        assert_eq!((&buffer[..5], descriptors.len()), (&b"other"[..], 2));
        let mut byte = [1];
        File::from(descriptors.remove(0))
            .read_exact(&mut byte)
            .unwrap();
        assert_eq!(byte, [0]);
        let end = receive(&there, &mut buffer, &mut descriptors).unwrap();
        assert!(matches!(end, Received::End));
        assert_eq!(send(&there, b"late", &[]).unwrap_err(), Errno::PIPE);
    }

    #[test]
    fn messages_that_do_not_fit_are_errors() {
        let (here, there) = pair().unwrap();
        send(&here, &[7; 17], &[]).unwrap();
        let error = receive(&there, &mut [0; 16], &mut Vec::new()).unwrap_err();
        assert_eq!(error, Errno::MSGSIZE);
        let file = File::open("/dev/zero").unwrap();
        let many = vec![file.as_fd(); MOST_DESCRIPTORS + 1];
        assert_eq!(send(&here, b"x", &many).unwrap_err(), Errno::MSGSIZE);
    }
}
