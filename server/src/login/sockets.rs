//! The sockets to the login process: one question at a time on each.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use gridhaul_accounts::socket::readable;
use rustix::io::Errno;
use tracing::error;

use super::messages::Answer;
use crate::locks::lock;
use crate::wire::{receive_message, send_message};

/// The error for an unexpected answer, or none.
pub(super) const LOST: &str = "the process that decides logins does not answer";

/// A pool of sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<OwnedFd>,
    /// The working sockets, in use or free.
    alive: usize,
}

impl Sockets {
    pub(super) fn new(free: Vec<OwnedFd>) -> Self {
        Self {
            state: Mutex::new(State {
                alive: free.len(),
                free,
            }),
            returned: Condvar::new(),
        }
    }

    /// Asks on a free socket. A socket whose other end is closed is not used again. There is no deadline: if the files that
    /// decide logins hang, logins continue when the files respond again.
    pub(super) fn ask(&self, message: &[u8]) -> Option<(Answer, Option<OwnedFd>)> {
        let socket = self.lease()?;
        match exchange(&socket, message) {
            Ok(answered) => {
                lock(&self.state).free.push(socket);
                self.returned.notify_one();
                Some(answered)
            }
            Err(errno) => {
                let mut state = lock(&self.state);
                state.alive -= 1;
                error!(%errno, left = state.alive, "{LOST}: restart the server");
                drop(state);
                self.returned.notify_all();
                None
            }
        }
    }

    /// As [`Sockets::ask`], and calls `late` if there is no answer in time. Then it waits for the answer.
    pub(super) fn ask_in_time(
        &self,
        message: &[u8],
        time: Duration,
        late: impl FnOnce(),
    ) -> Option<Answer> {
        let socket = self.lease()?;
        let asked = send_message(&socket, message, &[]).and_then(|()| readable(&socket, time));
        if asked == Ok(false) {
            late();
        }
        let answered = asked.and_then(|_| answer(&socket));
        match answered {
            Ok((answer, _)) => {
                lock(&self.state).free.push(socket);
                Some(answer)
            }
            // The end of the process is noticed elsewhere.
            Err(_) => None,
        }
    }

    /// A free socket; `None` when no socket works any more.
    fn lease(&self) -> Option<OwnedFd> {
        let mut state = lock(&self.state);
        while state.alive > 0 {
            if let Some(socket) = state.free.pop() {
                return Some(socket);
            }
            let waited = self.returned.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

/// One question and its answer.
fn exchange(socket: &OwnedFd, message: &[u8]) -> Result<(Answer, Option<OwnedFd>), Errno> {
    send_message(socket, message, &[])?;
    answer(socket)
}

fn answer(socket: &OwnedFd) -> Result<(Answer, Option<OwnedFd>), Errno> {
    let mut descriptors = Vec::new();
    let message = receive_message(socket, &mut descriptors)?.ok_or(Errno::PIPE)?;
    let answer = postcard::from_bytes(&message).map_err(|_| Errno::PROTO)?;
    Ok((answer, descriptors.pop()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use gridhaul_accounts::socket::pair;

    use super::*;

    #[test]
    fn a_socket_whose_other_end_is_gone_costs_one_question() {
        let (dead, gone) = pair().expect("a pair");
        let (works, other) = pair().expect("a pair");
        drop(gone);
        let answers = thread::spawn(move || {
            for _ in 0..2 {
                receive_message(&other, &mut Vec::new()).expect("a question");
                let answer = postcard::to_stdvec(&Answer::Done).expect("encoded");
                send_message(&other, &answer, &[]).expect("sent");
            }
        });
        // The last one is used first.
        let sockets = Sockets::new(vec![works, dead]);
        assert!(sockets.ask(b"?").is_none());
        for _ in 0..2 {
            assert!(matches!(sockets.ask(b"?"), Some((Answer::Done, None))));
        }
        answers.join().expect("no panic");
        assert!(sockets.ask(b"?").is_none(), "it has answered for good");
        assert!(
            sockets.ask(b"?").is_none(),
            "there is none left to wait for"
        );
    }
}
