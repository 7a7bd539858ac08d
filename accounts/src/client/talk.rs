//! What goes over the sockets of a broker.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;

use super::AccountError;
use crate::messages::{Hello, LONGEST_PATH, Ready, Reply, Request};
use crate::socket::{self, Received, readable};

/// How long the account database and the root's file system may take.
const START: Duration = Duration::from_secs(30);

/// How often a call that can be cancelled looks whether it is.
const LOOK: Duration = Duration::from_millis(100);

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The broker never had the request.
    Unsent,
    /// It had it, and is gone.
    Unanswered,
    /// What came is no answer.
    Garbled,
}

/// Waits for the first message of a broker: how it is, and the sockets for requests.
pub(super) fn greet(socket: &OwnedFd) -> Result<(Ready, Vec<OwnedFd>), AccountError> {
    /// Room for a refusal with a path in it.
    const HELLO_BYTES: usize = LONGEST_PATH + 1024;

    if !readable(socket, START).map_err(AccountError::Monitor)? {
        return Err(AccountError::Silent(START));
    }
    let mut buffer = [0; HELLO_BYTES];
    let mut sockets = Vec::new();
    let received =
        socket::receive(socket, &mut buffer, &mut sockets).map_err(AccountError::Monitor)?;
    let Received::Message(bytes) = received else {
        return Err(AccountError::Monitor(Errno::PIPE));
    };
    let hello = postcard::from_bytes(&buffer[..bytes]);
    let Hello(ready) = hello.map_err(|_| AccountError::Monitor(Errno::PROTO))?;
    let ready = ready?;
    // Descriptors that this process has no room for are left out by the kernel.
    if sockets.is_empty() {
        return Err(AccountError::Monitor(Errno::MFILE));
    }
    Ok((ready, sockets))
}

/// Sends a request and waits for its answer. When `cancelled` says so, tells the broker to stop, and
/// goes on waiting.
pub(super) fn ask(
    socket: &OwnedFd,
    message: &[u8],
    buffer: &mut [u8],
    cancelled: Option<&dyn Fn() -> bool>,
) -> Result<(Reply, Vec<OwnedFd>), Broken> {
    socket::send(socket, message, &[]).map_err(|_| Broken::Unsent)?;
    if let Some(cancelled) = cancelled {
        while !readable(socket, LOOK).map_err(|_| Broken::Unanswered)? {
            if cancelled() {
                let cancel = postcard::to_stdvec(&Request::Cancel).map_err(|_| Broken::Garbled)?;
                socket::send(socket, &cancel, &[]).map_err(|_| Broken::Unanswered)?;
                break;
            }
        }
    }
    let mut descriptors = Vec::new();
    match socket::receive(socket, buffer, &mut descriptors) {
        Ok(Received::Message(bytes)) => match postcard::from_bytes(&buffer[..bytes]) {
            Ok(reply) => Ok((reply, descriptors)),
            Err(_) => Err(Broken::Garbled),
        },
        Err(Errno::MSGSIZE) => Err(Broken::Garbled),
        Ok(Received::End) | Err(_) => Err(Broken::Unanswered),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn answering(answer: &[u8]) -> Result<Reply, Broken> {
        let (ours, theirs) = socket::pair().unwrap();
        socket::send(&theirs, answer, &[]).unwrap();
        let request = postcard::to_stdvec(&Request::Stat(b"/")).unwrap();
        ask(&ours, &request, &mut [0; 64], None).map(|(reply, _)| reply)
    }

    #[test]
    fn an_answer_that_is_none_is_told_from_silence() {
        let done = postcard::to_stdvec(&Reply::Done).unwrap();
        assert!(matches!(answering(&done), Ok(Reply::Done)));
        assert_eq!(answering(&[200; 8]).unwrap_err(), Broken::Garbled);
        assert_eq!(answering(&[0; 65]).unwrap_err(), Broken::Garbled);
        let request = postcard::to_stdvec(&Request::Stat(b"/")).unwrap();
        let (ours, theirs) = socket::pair().unwrap();
        drop(theirs);
        let broken = ask(&ours, &request, &mut [0; 64], None).unwrap_err();
        assert_eq!(broken, Broken::Unsent);
        let (ours, theirs) = socket::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            socket::receive(&theirs, &mut buffer, &mut Vec::new()).unwrap();
        });
        let broken = ask(&ours, &request, &mut [0; 64], None).unwrap_err();
        assert_eq!(broken, Broken::Unanswered);
        reader.join().unwrap();
    }

    #[test]
    fn a_claim_of_many_entries_takes_no_memory() {
        // `Entries`, and a number of them that no message can hold.
        let mut message = vec![3];
        message.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(answering(&message).unwrap_err(), Broken::Garbled);
    }

    #[test]
    fn a_call_is_cancelled_once() {
        let (ours, theirs) = socket::pair().unwrap();
        let asked = Cell::new(0);
        let cancelled = || {
            asked.set(asked.get() + 1);
            true
        };
        let broker = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            let mut heard = Vec::new();
            for _ in 0..2 {
                socket::receive(&theirs, &mut buffer, &mut Vec::new()).unwrap();
                heard.push(buffer[0]);
            }
            let done = postcard::to_stdvec(&Reply::Done).unwrap();
            socket::send(&theirs, &done, &[]).unwrap();
            heard
        });
        let request = postcard::to_stdvec(&Request::RemoveTree(b"d")).unwrap();
        let answer = ask(&ours, &request, &mut [0; 64], Some(&cancelled));
        assert!(matches!(answer, Ok((Reply::Done, descriptors)) if descriptors.is_empty()));
        let cancel = postcard::to_stdvec(&Request::Cancel).unwrap();
        assert_eq!(broker.join().unwrap(), [request[0], cancel[0]]);
        assert_eq!(asked.get(), 1);
    }
}
