//! The login process's side: sockets to the helper process, one question at a time on each.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_accounts::socket::readable;

use super::AT_A_TIME;
use super::question::{CalloutError, Claim, Permission, read_answer};
use crate::wire::{receive_message, send_message};

/// The number of questions that wait for another to end.
const WAITING: usize = 16;

/// The maximum number of threads that wait for the callout.
pub(crate) const MOST_QUESTIONS: usize = AT_A_TIME + WAITING;

/// The helper process ends a question itself. After this further time it is taken for broken.
const MARGIN: Duration = Duration::from_secs(5);

/// Asks the callout through the helper process.
#[derive(Debug)]
pub(crate) struct CalloutClient {
    within: Duration,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<OwnedFd>,
    /// The working sockets, in use or free.
    alive: usize,
    waiting: usize,
}

impl CalloutClient {
    pub(super) fn new(sockets: Vec<OwnedFd>, within: Duration) -> Self {
        Self {
            within,
            state: Mutex::new(State {
                alive: sockets.len(),
                free: sockets,
                waiting: 0,
            }),
            returned: Condvar::new(),
        }
    }

    /// Asks about a client. Blocks, at most about twice as long as the time limit of an answer.
    ///
    /// # Errors
    ///
    /// When there is no permission.
    pub(crate) fn ask(&self, claim: &Claim<'_>) -> Result<Permission, CalloutError> {
        let question = claim.to_json()?;
        let socket = self.lease()?;
        match exchange(&socket, &question, self.within + MARGIN) {
            Some(Ok(answer)) => {
                self.give_back(Some(socket));
                read_answer(&answer)
            }
            Some(Err(reason)) => {
                self.give_back(Some(socket));
                Err(CalloutError::Failed(reason))
            }
            None => {
                // A late answer must not be taken for that to another question.
                self.give_back(None);
                Err(failed(
                    "the process that asks it does not answer: restart the server",
                ))
            }
        }
    }

    fn lease(&self) -> Result<OwnedFd, CalloutError> {
        let deadline = Instant::now() + self.within;
        let mut state = self.lock();
        if state.free.is_empty() && state.waiting >= WAITING {
            return Err(failed("too many questions to it are under way"));
        }
        state.waiting += 1;
        let leased = loop {
            if let Some(socket) = state.free.pop() {
                break Ok(socket);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.alive == 0 {
                break Err(failed(
                    "the process that asks it has ended: restart the server",
                ));
            }
            if left.is_zero() {
                break Err(failed("it is still busy with other questions"));
            }
            let waited = self.returned.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        leased
    }

    fn give_back(&self, socket: Option<OwnedFd>) {
        let mut state = self.lock();
        match socket {
            Some(socket) => state.free.push(socket),
            None => state.alive -= 1,
        }
        drop(state);
        self.returned.notify_all();
    }

    /// Every change under the lock is complete, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(reason: &str) -> CalloutError {
    CalloutError::Failed(reason.to_owned())
}

/// One question and its answer. `None` if the process is gone or stuck.
fn exchange(
    socket: &OwnedFd,
    question: &[u8],
    within: Duration,
) -> Option<Result<Vec<u8>, String>> {
    send_message(socket, question, &[]).ok()?;
    if !readable(socket, within).ok()? {
        return None;
    }
    let answer = receive_message(socket, &mut Vec::new()).ok()??;
    postcard::from_bytes(&answer).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use gridhaul_accounts::socket::pair;

    use super::*;

    const CLAIM: Claim<'static> = Claim {
        identity: "/CN=a",
        subjects: &["/CN=a"],
        fqans: &[],
        address: None,
        requested: None,
    };

    fn reply(socket: &OwnedFd, answer: Result<&str, &str>) {
        let answer = answer.map(|text| text.as_bytes().to_vec());
        let answer = postcard::to_stdvec(&answer.map_err(str::to_owned)).expect("encoded");
        send_message(socket, &answer, &[]).expect("sent");
    }

    #[test]
    fn a_process_that_is_gone_or_stuck_permits_nothing() {
        let (here, there) = pair().expect("a pair");
        let client = CalloutClient::new(vec![here], Duration::from_millis(1));
        drop(there);
        for _ in 0..2 {
            assert!(matches!(client.ask(&CLAIM), Err(CalloutError::Failed(_))));
        }
    }

    #[test]
    fn answers_and_failures_come_back() {
        let (here, there) = pair().expect("a pair");
        let client = CalloutClient::new(vec![here], Duration::from_secs(60));
        let helper = thread::spawn(move || {
            for answer in [
                Ok("{\"decision\":\"permit\",\"account\":\"grid\"}"),
                Err("no such program"),
                Ok("garbage"),
            ] {
                receive_message(&there, &mut Vec::new()).expect("a question");
                reply(&there, answer);
            }
        });
        let granted = client.ask(&CLAIM).expect("permitted");
        assert_eq!(granted.account.as_deref(), Some("grid"));
        for _ in 0..2 {
            assert!(matches!(client.ask(&CLAIM), Err(CalloutError::Failed(_))));
        }
        helper.join().expect("no panic");
    }

    #[test]
    fn a_callout_that_hangs_holds_a_bounded_number_of_threads() {
        let (here, there) = pair().expect("a pair");
        let client = Arc::new(CalloutClient::new(vec![here], Duration::from_secs(60)));
        let ask = || {
            let client = Arc::clone(&client);
            thread::spawn(move || client.ask(&CLAIM))
        };
        let asking: Vec<_> = (0..=WAITING).map(|_| ask()).collect();
        while client.lock().waiting < WAITING || !client.lock().free.is_empty() {
            thread::yield_now();
        }
        let refused = client.ask(&CLAIM).expect_err("too many");
        assert!(refused.to_string().contains("too many"), "{refused}");
        drop(there);
        for asked in asking {
            assert!(asked.join().expect("no panic").is_err());
        }
    }
}
