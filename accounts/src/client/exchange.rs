//! Exchanges of messages over the sockets of a broker.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::error::AccountError;
use crate::messages::{Hello, LONGEST_PATH, REPLY_BYTES, Ready, Reply, Request};
use crate::socket::{self, Received, readable};

/// The time limit of a start: the account database and the root's file system.
const START: Duration = Duration::from_secs(30);

/// How often a call polls whether it is cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(100);

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The broker did not receive the request.
    Unsent,
    /// The broker ended after it received the request.
    Unanswered,
    /// The answer is not a valid message.
    Garbled,
    /// The time limit was exceeded. The answer may still arrive.
    Late,
}

/// Waits for the first message of a broker: whether it could start, and the sockets for requests.
pub(crate) fn greet(socket: &OwnedFd) -> Result<(Ready, Vec<OwnedFd>), AccountError> {
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
    // The kernel drops descriptors that exceed this process's limit.
    if sockets.is_empty() {
        return Err(AccountError::Monitor(Errno::MFILE));
    }
    Ok((ready, sockets))
}

/// Sends a request and waits for its answer for `time`. With `cancelled` the time limit begins when it returns true:
/// then the broker is asked to stop.
pub(crate) fn ask(
    socket: &OwnedFd,
    message: &[u8],
    buffer: &mut [u8],
    time: Duration,
    cancelled: Option<&dyn Fn() -> bool>,
) -> Result<(Reply, Vec<OwnedFd>), Broken> {
    let mut deadline = Instant::now() + time;
    socket::send(socket, message, &[]).map_err(|_| Broken::Unsent)?;
    if let Some(cancelled) = cancelled {
        while !readable(socket, CANCEL_POLL).map_err(|_| Broken::Unanswered)? {
            if cancelled() {
                let cancel = postcard::to_stdvec(&Request::Cancel).map_err(|_| Broken::Garbled)?;
                socket::send(socket, &cancel, &[]).map_err(|_| Broken::Unanswered)?;
                break;
            }
        }
        deadline = Instant::now() + time;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    if !readable(socket, left).map_err(|_| Broken::Unanswered)? {
        return Err(Broken::Late);
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

/// The state of an answer that its caller no longer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discarded {
    /// It has not arrived.
    NotYet,
    /// It was discarded, and the socket is reusable.
    Answer,
    /// The socket is closed or out of step, and cannot be reused.
    End,
}

/// Discards a late answer if it has arrived.
pub(crate) fn discard(socket: &OwnedFd) -> Discarded {
    match readable(socket, Duration::ZERO) {
        Ok(true) => {}
        Ok(false) => return Discarded::NotYet,
        Err(_) => return Discarded::End,
    }
    let mut buffer = vec![0; REPLY_BYTES];
    let Ok(Received::Message(bytes)) = socket::receive(socket, &mut buffer, &mut Vec::new()) else {
        return Discarded::End;
    };
    match postcard::from_bytes(&buffer[..bytes]) {
        // The broker keeps the rest of the listing until it is told to forget it.
        Ok(Reply::Entries { more: Some(_), .. }) => forget(socket, &buffer[..bytes]),
        Ok(_) => Discarded::Answer,
        Err(_) => Discarded::End,
    }
}

/// Ends a listing whose first answer arrived too late.
fn forget(socket: &OwnedFd, first: &[u8]) -> Discarded {
    /// The broker has just answered, and this request accesses no file.
    const TIME: Duration = Duration::from_millis(100);

    let Ok(Reply::Entries {
        more: Some(number), ..
    }) = postcard::from_bytes(first)
    else {
        return Discarded::End;
    };
    let Ok(message) = postcard::to_stdvec(&Request::Forget(number)) else {
        return Discarded::End;
    };
    match ask(socket, &message, &mut [0; 256], TIME, None) {
        Ok(_) => Discarded::Answer,
        Err(_) => Discarded::End,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    fn answering(answer: &[u8]) -> Result<Reply, Broken> {
        let (ours, theirs) = socket::pair().unwrap();
        socket::send(&theirs, answer, &[]).unwrap();
        let request = postcard::to_stdvec(&Request::Stat(b"/")).unwrap();
        ask(&ours, &request, &mut [0; 64], TIME, None).map(|(reply, _)| reply)
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
        let broken = ask(&ours, &request, &mut [0; 64], TIME, None).unwrap_err();
        assert_eq!(broken, Broken::Unsent);
        let (ours, theirs) = socket::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            socket::receive(&theirs, &mut buffer, &mut Vec::new()).unwrap();
        });
        let broken = ask(&ours, &request, &mut [0; 64], TIME, None).unwrap_err();
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
        let answer = ask(&ours, &request, &mut [0; 64], TIME, Some(&cancelled));
        assert!(matches!(answer, Ok((Reply::Done, descriptors)) if descriptors.is_empty()));
        let cancel = postcard::to_stdvec(&Request::Cancel).unwrap();
        assert_eq!(broker.join().unwrap(), [request[0], cancel[0]]);
        assert_eq!(asked.get(), 1);
    }
}
