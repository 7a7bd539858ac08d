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

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The login process has ended.
    Ended,
    /// The answer was not there in time, to this question or to one before that has not been answered since.
    Late,
}

/// A pool of sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<OwnedFd>,
    /// Answers that were waited for too long will come here.
    late: Option<OwnedFd>,
    /// The working sockets, in use or free.
    alive: usize,
}

impl Sockets {
    pub(super) fn new(free: Vec<OwnedFd>) -> Self {
        Self {
            state: Mutex::new(State {
                alive: free.len(),
                free,
                late: None,
            }),
            returned: Condvar::new(),
        }
    }

    /// Asks on a free socket. A socket whose other end is closed is not used again. There is no deadline: if the files that
    /// decide logins hang, logins continue when the files respond again.
    pub(super) fn ask(&self, message: &[u8]) -> Option<(Answer, Option<OwnedFd>)> {
        let socket = self.lease()?;
        let asked = send_message(&socket, message, &[]).and_then(|()| answer(&socket));
        match asked {
            Ok(answered) => {
                self.give_back(socket);
                Some(answered)
            }
            Err(errno) => {
                self.give_up(&errno);
                None
            }
        }
    }

    /// Asks, and waits `within` this time. While an answer is late, no other such question is sent, so that answers that never
    /// come take one socket from the other questions.
    pub(super) fn ask_within(&self, message: &[u8], within: Duration) -> Result<Answer, NoAnswer> {
        if !self.is_answered() {
            return Err(NoAnswer::Late);
        }
        let socket = self.lease().ok_or(NoAnswer::Ended)?;
        let asked = send_message(&socket, message, &[]).and_then(|()| readable(&socket, within));
        match asked.and_then(|is_there| is_there.then(|| answer(&socket)).transpose()) {
            Ok(Some((answer, _))) => {
                self.give_back(socket);
                Ok(answer)
            }
            Ok(None) => {
                lock(&self.state).late = Some(socket);
                Err(NoAnswer::Late)
            }
            Err(errno) => {
                self.give_up(&errno);
                Err(NoAnswer::Ended)
            }
        }
    }

    /// Takes a late answer, if it is there now. Whether none is expected any more.
    fn is_answered(&self) -> bool {
        let Some(socket) = lock(&self.state).late.take() else {
            return true;
        };
        let is_there = readable(&socket, Duration::ZERO);
        match is_there.and_then(|is_there| is_there.then(|| answer(&socket)).transpose()) {
            Ok(Some(_)) => self.give_back(socket),
            Ok(None) => {
                lock(&self.state).late = Some(socket);
                return false;
            }
            Err(errno) => self.give_up(&errno),
        }
        true
    }

    fn give_back(&self, socket: OwnedFd) {
        lock(&self.state).free.push(socket);
        self.returned.notify_one();
    }

    fn give_up(&self, errno: &Errno) {
        let mut state = lock(&self.state);
        state.alive -= 1;
        error!(%errno, left = state.alive, "{LOST}: restart the server");
        drop(state);
        self.returned.notify_all();
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
                self.give_back(socket);
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

    #[test]
    fn a_late_answer_takes_one_socket_until_it_comes() {
        let (here, there) = pair().expect("a pair");
        let (other, _other_there) = pair().expect("a pair");
        let sockets = Sockets::new(vec![other, here]);
        let ask = |within| sockets.ask_within(b"?", within).map(|_| ());
        assert_eq!(ask(Duration::ZERO), Err(NoAnswer::Late));
        assert_eq!(ask(Duration::MAX), Err(NoAnswer::Late), "not sent");
        assert_eq!(lock(&sockets.state).free.len(), 1);
        receive_message(&there, &mut Vec::new()).expect("a question");
        let answer = postcard::to_stdvec(&Answer::Done).expect("encoded");
        for _ in 0..2 {
            send_message(&there, &answer, &[]).expect("sent");
        }
        // The first was the late one.
        assert_eq!(ask(Duration::from_secs(60)), Ok(()));
        assert_eq!(lock(&sockets.state).free.len(), 2);
    }
}
