//! The channel of a trial: it comes from the peer's address, and its first bytes are the token.
//!
//! Other programs of the peer's host, and hosts behind the same address, can connect as well. All connections are served at the same
//! time, each by a thread, so that silent ones keep the peer's own from nothing. The thread that has opened the channel also uses it:
//! a driver may have moved it to the processors of a device.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use gridhaul_stack::{
    AcceptError, Cancel, Channel, ChannelError, Incoming, Operation, Received, StackListener,
};

/// Connections from the peer's address in one trial.
const MOST: usize = 16;

/// How long others may take to come after a connection has failed. If it was the peer's, no other comes, and both ends have the error.
const GRACE: Duration = Duration::from_secs(1);

/// How often the thread that accepts looks how connections have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for the channel with the token, and does this with it.
///
/// # Errors
///
/// When no such channel comes in time, in words.
pub(super) fn with_channel<T: Send>(
    listener: &mut StackListener,
    peer: IpAddr,
    token: &str,
    operation: &Operation<'_>,
    work: impl Fn(&mut dyn Channel) -> T + Sync,
) -> Result<T, String> {
    let candidates = Candidates {
        token,
        deadline: operation.deadline,
        found: Cancel::new(),
        is_taken: AtomicBool::new(false),
        work: &work,
    };
    let candidates = &candidates;
    thread::scope(|scope| {
        let (sender, outcomes) = mpsc::channel();
        let mut waiting = Waiting::default();
        while !candidates.found.is_cancelled() && waiting.goes_on(operation.deadline) {
            while let Ok(outcome) = outcomes.try_recv() {
                if let Outcome::Done(result) = outcome {
                    return Ok(result);
                }
                waiting.ended(outcome);
            }
            let Some(incoming) = waiting.next(listener, peer, &candidates.found) else {
                continue;
            };
            let sender = sender.clone();
            let serve = move || {
                // Nothing is received any more once the channel was found.
                let _ = sender.send(candidates.serve(incoming));
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, serve) {
                waiting.ended(Outcome::<T>::Failed(error.to_string()));
            }
        }
        candidates.found.cancel();
        drop(sender);
        // Until the last thread has ended.
        let done = outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Done(result) => Some(result),
            Outcome::Stranger | Outcome::Failed(_) => None,
        });
        done.ok_or_else(|| waiting.reason())
    })
}

/// How a connection has ended.
enum Outcome<T> {
    /// It was the channel, and this was done with it.
    Done(T),
    /// It had no token.
    Stranger,
    Failed(String),
}

/// What the threads of connections share.
struct Candidates<'a, W> {
    token: &'a str,
    deadline: Option<Instant>,
    /// Ends all other connections.
    found: Cancel,
    is_taken: AtomicBool,
    work: &'a W,
}

impl<W> Candidates<'_, W> {
    fn serve<T>(&self, incoming: Incoming) -> Outcome<T>
    where
        W: Fn(&mut dyn Channel) -> T,
    {
        let operation = Operation {
            deadline: self.deadline,
            cancel: &self.found,
        };
        let mut channel = match incoming.establish(&operation) {
            Ok(channel) => channel,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        if !has_token(&mut *channel, self.token, &operation) {
            return Outcome::Stranger;
        }
        if self.is_taken.swap(true, Ordering::AcqRel) {
            return Outcome::Stranger;
        }
        self.found.cancel();
        Outcome::Done((self.work)(&mut *channel))
    }
}

/// Whether the first bytes are the token.
fn has_token(channel: &mut dyn Channel, token: &str, operation: &Operation<'_>) -> bool {
    let mut received = vec![0; token.len()];
    let mut count = 0;
    while count < received.len() {
        match channel.receive(&mut received[count..], operation) {
            Ok(Received::Bytes(more)) => count += more.get(),
            Ok(Received::EndOfStream) | Err(_) => return false,
        }
    }
    verify_slices_are_equal(&received, token.as_bytes()).is_ok()
}

/// The connections that have come so far.
#[derive(Debug, Default)]
struct Waiting {
    came: usize,
    ended: usize,
    /// The last one that has failed, and when.
    failure: Option<(Instant, String)>,
    /// No more can be accepted.
    is_closed: bool,
}

impl Waiting {
    fn ended<T>(&mut self, outcome: Outcome<T>) {
        self.ended += 1;
        if let Outcome::Failed(reason) = outcome {
            self.failure = Some((Instant::now(), reason));
        }
    }

    /// Whether the channel may still come.
    fn goes_on(&self, deadline: Option<Instant>) -> bool {
        let now = Instant::now();
        let has_time = deadline.is_none_or(|deadline| now < deadline);
        let is_served = self.ended < self.came;
        let failed = self.failure.as_ref();
        let has_failed = failed.is_some_and(|(at, _)| now >= *at + GRACE);
        let may_come = !self.is_closed && self.came < MOST && !has_failed;
        has_time && (is_served || may_come)
    }

    /// The next connection from the peer's address, if one comes soon.
    fn next(
        &mut self,
        listener: &mut StackListener,
        peer: IpAddr,
        found: &Cancel,
    ) -> Option<Incoming> {
        let soon = Operation {
            deadline: Some(Instant::now() + LOOK_EVERY),
            cancel: found,
        };
        if self.is_closed || self.came >= MOST {
            // At the end of this time, or when the channel is found.
            let _ = soon.sleep(LOOK_EVERY);
            return None;
        }
        match listener.accept(&soon) {
            Ok(incoming) if is_same(incoming.peer().ip(), peer) => {
                self.came += 1;
                Some(incoming)
            }
            // Other hosts may connect until the time is over.
            Ok(_) | Err(AcceptError::Connection { .. }) => None,
            Err(AcceptError::Listener(
                ChannelError::DeadlineExceeded | ChannelError::Cancelled,
            )) => None,
            Err(AcceptError::Listener(error)) => {
                self.is_closed = true;
                self.failure = Some((Instant::now(), error.to_string()));
                None
            }
        }
    }

    /// Why no channel was found.
    fn reason(self) -> String {
        match self.failure {
            Some((_, reason)) => reason,
            None => "no data connection had the token".to_owned(),
        }
    }
}

fn is_same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};

    use gridhaul_protocol::stack::StackSpec;
    use gridhaul_stack::SocketOptions;

    use super::*;
    use crate::drivers::registry;

    const TOKEN: &str = "0123456789abcdef";

    const LATE: Duration = Duration::from_secs(60);

    /// What came of the connections that `connect` makes to a listener with this stack, and how long it took.
    fn taken(
        stack: &str,
        time: Duration,
        connect: impl FnOnce(SocketAddr) + Send,
    ) -> (Result<String, String>, Duration) {
        let spec = StackSpec::parse(stack).expect("a stack string");
        let stack = registry().build(&spec).expect("a stack");
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut listener = stack
            .listen(local, &SocketOptions::default())
            .expect("a port");
        let address = listener.address();
        let began = Instant::now();
        let taken = thread::scope(|scope| {
            scope.spawn(move || connect(address));
            let cancel = Cancel::new();
            let operation = Operation {
                deadline: Some(began + time),
                cancel: &cancel,
            };
            with_channel(&mut listener, local, TOKEN, &operation, |channel| {
                let mut rest = [0; 4];
                let operation = Operation {
                    deadline: Some(Instant::now() + LATE),
                    cancel: &cancel,
                };
                let received = channel.receive(&mut rest, &operation);
                assert!(matches!(received, Ok(Received::Bytes(count)) if count.get() == 4));
                String::from_utf8(rest.to_vec()).expect("UTF-8")
            })
        });
        (taken, began.elapsed())
    }

    fn silent(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).expect("connected")
    }

    fn say(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = silent(address);
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    }

    /// Returns when the other end has closed it.
    fn is_closed(mut stream: TcpStream) {
        stream.set_read_timeout(Some(LATE)).expect("set");
        // It may also reset the connection.
        let closed = stream.read(&mut [0; 1]);
        let is_late = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!closed.is_err_and(is_late), "it is still open");
    }

    #[test]
    fn connections_that_send_nothing_keep_no_channel_waiting() {
        let (taken, took) = taken("tcp", LATE, |address| {
            let mut others: Vec<_> = (0..MOST - 2).map(|_| silent(address)).collect();
            others.push(say(address, &TOKEN[..8]));
            let channel = say(address, &format!("{TOKEN}data"));
            others.into_iter().for_each(is_closed);
            drop(channel);
        });
        assert_eq!(taken.as_deref(), Ok("data"));
        assert!(took < LATE / 2, "{took:?}");
    }

    #[test]
    fn connections_without_the_token_are_not_taken() {
        let (taken, took) = taken("tcp", LATE, |address| {
            is_closed(say(address, "fedcba9876543210data"));
            is_closed(say(address, &TOKEN.to_uppercase()));
            drop(say(address, &format!("{TOKEN}more")));
        });
        assert_eq!(taken.as_deref(), Ok("more"));
        assert!(took < LATE / 2, "{took:?}");
    }

    #[test]
    fn the_number_of_connections_is_bounded() {
        let (taken, took) = taken("tcp", LATE, |address| {
            for _ in 0..MOST {
                is_closed(say(address, "fedcba9876543210"));
            }
        });
        assert_eq!(taken.unwrap_err(), "no data connection had the token");
        assert!(took < LATE / 2, "{took:?}");
    }

    #[test]
    fn silent_connections_end_with_the_time() {
        // Long enough for a connection on a busy machine.
        let (taken, _) = taken("tcp", Duration::from_secs(2), |address| {
            is_closed(silent(address));
        });
        assert_eq!(taken.unwrap_err(), "no data connection had the token");
    }

    /// It is the peer's own, or a channel follows.
    #[cfg(feature = "rdma")]
    #[test]
    fn a_handshake_that_fails_is_the_error_if_nothing_follows() {
        let (taken, took) = taken("rdma:provider=soft", LATE, |address| {
            is_closed(say(address, &"GET / HTTP/1.1\r\n\r\n".repeat(10)));
        });
        let error = taken.unwrap_err();
        assert!(error.contains("rdma"), "{error}");
        assert!(took >= GRACE && took < LATE / 2, "{took:?}");
    }
}
