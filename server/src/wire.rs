//! Messages between the processes of the server over SEQPACKET sockets, in fragments.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gridhaul_accounts::socket::{Received, receive, send};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// The size of a fragment. The kernel buffers several for a socket.
const PIECE: usize = 32 * 1024;

/// The longest message: a chain of certificates with a token of the longest kind.
const LONGEST: usize = 1 << 20;

const LAST: u8 = 0;
const MORE: u8 = 1;

/// Sends a message, with descriptors in its last fragment.
pub(crate) fn send_message(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    if message.len() > LONGEST {
        return Err(Errno::MSGSIZE);
    }
    let mut rest = message;
    loop {
        let (piece, after) = rest.split_at(rest.len().min(PIECE));
        let mut framed = Zeroizing::new(Vec::with_capacity(piece.len() + 1));
        framed.push(if after.is_empty() { LAST } else { MORE });
        framed.extend_from_slice(piece);
        if after.is_empty() {
            return send(&socket, &framed, descriptors);
        }
        send(&socket, &framed, &[])?;
        rest = after;
    }
}

/// Waits for a message; `None` when the other end is gone.
pub(crate) fn receive_message(
    socket: impl AsFd,
    descriptors: &mut Vec<OwnedFd>,
) -> Result<Option<Zeroizing<Vec<u8>>>, Errno> {
    let mut message = Zeroizing::new(Vec::new());
    let mut buffer = Zeroizing::new(vec![0; PIECE + 1]);
    loop {
        let Received::Message(bytes) = receive(&socket, &mut buffer, descriptors)? else {
            return Ok(None);
        };
        let (kind, piece) = buffer[..bytes].split_first().ok_or(Errno::PROTO)?;
        if message.len() + piece.len() > LONGEST {
            return Err(Errno::MSGSIZE);
        }
        // A vector that grows leaves a copy behind that is not wiped, so the larger buffer is allocated here.
        let mut grown = Zeroizing::new(Vec::with_capacity(message.len() + piece.len()));
        grown.extend_from_slice(&message);
        grown.extend_from_slice(piece);
        message = grown;
        if *kind == LAST {
            return Ok(Some(message));
        }
    }
}

/// The reason why a new process is not ready.
#[derive(Debug)]
pub(crate) enum NotReady {
    /// It has ended, or its socket fails.
    Ended(io::Error),
    /// The reason in its message.
    Reason(String),
}

/// Reports to the parent process that this process is ready, or why it is not.
pub(crate) fn tell_ready(tell: impl AsFd, reason: Option<&str>) {
    // A parent that has ended does not need the message.
    let _ = send_message(tell, reason.unwrap_or_default().as_bytes(), &[]);
}

/// Waits until a new process has called [`tell_ready`].
///
/// # Errors
///
/// When it is not ready.
pub(crate) fn wait_until_ready(told: impl AsFd) -> Result<(), NotReady> {
    match receive_message(told, &mut Vec::new()) {
        Ok(Some(message)) if message.is_empty() => Ok(()),
        Ok(Some(message)) => {
            let reason = String::from_utf8_lossy(&message).into_owned();
            Err(NotReady::Reason(reason))
        }
        Ok(None) => Err(NotReady::Ended(Errno::PIPE.into())),
        Err(errno) => Err(NotReady::Ended(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use gridhaul_accounts::socket::pair;

    use super::*;

    #[test]
    fn messages_of_every_length_arrive_whole() {
        let (here, there) = pair().expect("a pair");
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5] {
            let sent: Vec<u8> = (0..=250).cycle().take(length).collect();
            let file = File::open("/dev/null").expect("opened");
            let mut descriptors = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| send_message(&here, &sent, &[file.as_fd()]).expect("sent"));
                let received = receive_message(&there, &mut descriptors).expect("received");
                assert_eq!(received.as_deref(), Some(&sent));
            });
            assert_eq!(descriptors.len(), 1, "{length} bytes");
        }
        drop(here);
        let end = receive_message(&there, &mut Vec::new()).expect("the end");
        assert!(end.is_none());
    }

    #[test]
    fn messages_without_end_are_refused() {
        let (here, there) = pair().expect("a pair");
        assert_eq!(
            send_message(&here, &vec![0; LONGEST + 1], &[]),
            Err(Errno::MSGSIZE)
        );
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut piece = vec![0; PIECE + 1];
                piece[0] = MORE;
                while send(&here, &piece, &[]).is_ok() {}
            });
            let received = receive_message(&there, &mut Vec::new());
            assert_eq!(received.err(), Some(Errno::MSGSIZE));
            drop(there);
        });
    }
}
