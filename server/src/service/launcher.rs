//! The launcher: the process that starts a new version of the program.
//!
//! It is forked before all other processes, and keeps the rights of the start, because the new version needs them. What confines
//! it also confines the new version, so that is little. It does little as well: it keeps the listening sockets and, on an order
//! without content, has the program of the start check the configuration and starts it. While the server starts, and its processes
//! can be trusted, sockets are kept and given back. After that the order is the only thing that it takes.
//!
//! Only the serving process has a connection to it. It ends when that one does.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gridhaul_accounts::process::{close_on_exec, fork, ignore_signals, set_name};
use gridhaul_accounts::socket::pair;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::environment::{BOUND, CONTROL, Environment, Passed};
use super::program::{Named, Program};
use super::successor::{Predecessor, Successor};
use super::trial;
use crate::locks::lock;
use crate::wire::{receive_message, send_message};

/// From the serving process. Each has one answer.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Keep the socket of the message, by this name, for the new version. Only while the server starts.
    Keep(String),
    /// Give a kept socket back: [`Answer::Socket`], or [`Answer::Done`] if there is none left. Only while the server starts.
    GiveBack,
    /// The server serves. Waits until the version before has made it the main process.
    Ready,
    /// The server does not start, for this reason.
    Fail(String),
    /// Start the new version: [`Answer::Upgraded`] or [`Answer::Failed`].
    Upgrade,
    /// The new version is the main process.
    Go,
    /// Close the sockets for control connections that the server has opened: it accepts no more.
    Close,
    /// Wait until the version before has ended.
    AwaitPredecessor,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done,
    /// With the socket.
    Socket(String),
    /// The process of the new version.
    Upgraded(u32),
    Failed(String),
}

/// A new version that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upgraded {
    /// Its main process.
    pub(crate) process: u32,
}

/// The serving process's connection to the launcher.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// `None` in other processes.
    socket: RwLock<Option<Arc<OwnedFd>>>,
    /// Held for an order and its answer.
    busy: Mutex<()>,
    pid: Pid,
}

impl Launcher {
    /// Starts the process, which keeps the sockets that the program was started with. Must be called while this process has
    /// one thread and all its rights, and before it opens anything else.
    ///
    /// # Errors
    ///
    /// When there is a second thread already, or no process can be started.
    pub(crate) fn start(environment: &mut Environment) -> std::io::Result<Self> {
        let program = Program::of_this_process(environment)?;
        let (here, there) = pair()?;
        let mut kept = Some((here, program));
        let passed = std::mem::take(&mut environment.passed);
        let predecessor = environment.predecessor.take().map(Predecessor::new);
        let mut parts = Some((there, passed, predecessor));
        let pid = fork(|| {
            let program = kept.take().map(|(_, program)| program);
            if let (Some(program), Some((serving, passed, predecessor))) = (program, parts.take()) {
                run(&serving, &program, passed, predecessor);
            }
        })?;
        // The closure ran in the child only, so here all values are still there.
        let (socket, _) = kept.ok_or(Errno::PIPE)?;
        Ok(Self {
            socket: RwLock::new(Some(Arc::new(socket))),
            busy: Mutex::default(),
            pid,
        })
    }

    /// Closes the connection, in a process that was forked from the serving one.
    pub(crate) fn disconnect(&self) {
        let mut socket = self.socket.write().unwrap_or_else(PoisonError::into_inner);
        *socket = None;
    }

    /// The process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Takes back the sockets that the program was started with. The launcher does not keep them.
    ///
    /// # Errors
    ///
    /// When the launcher has ended, or this process has too many descriptors.
    pub(crate) fn give_back(&self) -> Result<Vec<Passed>, Errno> {
        let mut all = Vec::new();
        loop {
            match self.ask(&Order::GiveBack, None)? {
                (Answer::Socket(name), Some(socket)) => all.push(Passed { name, socket }),
                (Answer::Socket(_), None) => return Err(Errno::MFILE),
                _ => return Ok(all),
            }
        }
    }

    /// Has a listening socket kept for the new version.
    ///
    /// # Errors
    ///
    /// As those of [`Launcher::give_back`].
    pub(crate) fn keep(&self, name: &str, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.ask(&Order::Keep(name.to_owned()), Some(socket))? {
            (Answer::Done, _) => Ok(()),
            _ => Err(Errno::MFILE),
        }
    }

    /// Tells the version before, if there is one, that this one serves, and waits until this one is the main process.
    pub(crate) fn ready(&self) {
        // A launcher that has ended is told when an upgrade is ordered.
        let _ = self.ask(&Order::Ready, None);
    }

    /// Tells the version before, if there is one, why this one does not start.
    pub(crate) fn fail(&self, reason: &str) {
        // The version before notices the end of this one as well.
        let _ = self.ask(&Order::Fail(reason.to_owned()), None);
    }

    /// Starts the new version, and waits until it serves.
    ///
    /// # Errors
    ///
    /// The reason why it does not. This version goes on then.
    pub(crate) fn upgrade(&self) -> Result<Upgraded, String> {
        match self.ask(&Order::Upgrade, None) {
            Ok((Answer::Upgraded(process), _)) => Ok(Upgraded { process }),
            Ok((Answer::Failed(reason), _)) => Err(reason),
            Ok(_) => Err("the launcher gave no answer: restart the server".to_owned()),
            Err(_) => Err("the launcher has ended: restart the server".to_owned()),
        }
    }

    /// Tells the new version that it is the main process.
    pub(crate) fn go(&self) {
        // If the launcher has ended, the new version has noticed it.
        let _ = self.ask(&Order::Go, None);
    }

    /// Has the sockets for control connections closed, so that clients are refused when the server accepts no more. A new version
    /// opens them again; those of the service manager stay.
    pub(crate) fn close(&self) {
        // A launcher that has ended has closed them.
        let _ = self.ask(&Order::Close, None);
    }

    /// Waits until the version before this one has ended; returns at once if there is none.
    pub(crate) fn await_predecessor(&self) {
        let _ = self.ask(&Order::AwaitPredecessor, None);
    }

    /// Ends the launcher, and with it an upgrade that has not succeeded.
    pub(crate) fn end(&self) {
        if let Some(socket) = self.connection() {
            // It fails only if the launcher has ended.
            let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        }
    }

    fn connection(&self) -> Option<Arc<OwnedFd>> {
        let socket = self.socket.read().unwrap_or_else(PoisonError::into_inner);
        socket.clone()
    }

    fn ask(
        &self,
        order: &Order,
        socket: Option<BorrowedFd<'_>>,
    ) -> Result<(Answer, Option<OwnedFd>), Errno> {
        let message = postcard::to_stdvec(order).map_err(|_| Errno::INVAL)?;
        let connection = self.connection().ok_or(Errno::PIPE)?;
        let _busy = lock(&self.busy);
        send_message(&*connection, &message, socket.as_slice())?;
        let mut descriptors = Vec::new();
        let answer = receive_message(&*connection, &mut descriptors)?.ok_or(Errno::PIPE)?;
        let answer = postcard::from_bytes(&answer).map_err(|_| Errno::PROTO)?;
        Ok((answer, descriptors.pop()))
    }
}

/// What the process has.
struct State<'a> {
    serving: &'a OwnedFd,
    program: &'a Program,
    kept: Vec<Passed>,
    predecessor: Option<Predecessor>,
    successor: Option<Successor>,
    /// The server is started, and may be attacked.
    is_sealed: bool,
}

/// The main function of the process.
fn run(serving: &OwnedFd, program: &Program, kept: Vec<Passed>, predecessor: Option<Predecessor>) {
    ignore_signals();
    set_name("gh-launcher", "launcher, which starts a new version");
    let confined = gridhaul_sandbox::launcher::confine(predecessor.is_some());
    let confined = confined.map_err(|error| error.to_string());
    let prepared = confined.and_then(|()| close_on_exec().map_err(|error| error.to_string()));
    if let Err(error) = prepared {
        gridhaul_accounts::process::tell(format_args!("the launcher cannot start: {error}"));
        return;
    }
    let mut state = State {
        serving,
        program,
        kept,
        predecessor,
        successor: None,
        is_sealed: false,
    };
    let mut descriptors = Vec::new();
    while let Ok(Some(message)) = receive_message(serving, &mut descriptors) {
        let Ok(order) = postcard::from_bytes::<Order>(&message) else {
            return;
        };
        let (answer, socket) = state.carry_out(order, descriptors.pop());
        descriptors.clear();
        let Ok(message) = postcard::to_stdvec(&answer) else {
            return;
        };
        let socket = socket.as_ref().map(|socket| socket.as_fd());
        if send_message(serving, &message, socket.as_slice()).is_err() {
            return;
        }
    }
}

impl State<'_> {
    fn carry_out(&mut self, order: Order, socket: Option<OwnedFd>) -> (Answer, Option<OwnedFd>) {
        let answer = match order {
            Order::Keep(_) | Order::GiveBack | Order::Ready | Order::Fail(_) if self.is_sealed => {
                Answer::Failed("the server is started already".to_owned())
            }
            Order::Keep(name) => match socket {
                Some(socket) => {
                    self.kept.push(Passed { name, socket });
                    Answer::Done
                }
                None => Answer::Failed("too many open files".to_owned()),
            },
            Order::GiveBack => match self.kept.is_empty() {
                true => Answer::Done,
                false => {
                    let Passed { name, socket } = self.kept.remove(0);
                    return (Answer::Socket(name), Some(socket));
                }
            },
            Order::Ready => {
                self.is_sealed = true;
                self.predecessor.iter().for_each(Predecessor::ready);
                Answer::Done
            }
            Order::Fail(reason) => {
                self.predecessor
                    .iter()
                    .for_each(|before| before.fail(&reason));
                Answer::Done
            }
            Order::Upgrade => match self.upgrade() {
                Ok(process) => Answer::Upgraded(process),
                Err(reason) => Answer::Failed(reason),
            },
            Order::Go => {
                self.successor.iter().for_each(Successor::go);
                Answer::Done
            }
            Order::Close => {
                let control = format!("{BOUND}{CONTROL}");
                self.kept.retain(|kept| kept.name != control);
                Answer::Done
            }
            Order::AwaitPredecessor => {
                self.predecessor.iter().for_each(Predecessor::gone);
                Answer::Done
            }
        };
        (answer, None)
    }

    fn upgrade(&mut self) -> Result<u32, String> {
        if !self.is_sealed || self.successor.is_some() {
            return Err("another version serves already".to_owned());
        }
        self.program.examine()?;
        let sockets: Vec<Named<'_>> = self
            .kept
            .iter()
            .map(|kept| (kept.name.as_str(), kept.socket.as_fd()))
            .collect();
        trial::examine(self.program, &sockets, self.serving.as_fd())?;
        let successor = Successor::start(self.program, &sockets, self.serving.as_fd())?;
        let process = successor.pid.as_raw_nonzero().get().unsigned_abs();
        self.successor = Some(successor);
        // The new version has them. They must be closed when it has ended, so that clients are refused.
        self.kept.clear();
        Ok(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_started_can_only_order_an_upgrade() {
        let (serving, _here) = pair().expect("sockets");
        let program = Program::of_this_process(&Environment::default()).expect("this test");
        let mut state = State {
            serving: &serving,
            program: &program,
            kept: Vec::new(),
            predecessor: None,
            successor: None,
            is_sealed: false,
        };
        let keep = |state: &mut State<'_>| {
            let (socket, _) = pair().expect("sockets");
            state.carry_out(Order::Keep("bound-gridftp".to_owned()), Some(socket))
        };
        assert!(matches!(keep(&mut state), (Answer::Done, None)));
        let (given, socket) = state.carry_out(Order::GiveBack, None);
        assert!(matches!(given, Answer::Socket(name) if name == "bound-gridftp"));
        assert!(socket.is_some());
        assert!(state.upgrade().is_err(), "it does not serve yet");
        state.carry_out(Order::Ready, None);
        assert!(matches!(keep(&mut state), (Answer::Failed(_), None)));
        assert!(state.kept.is_empty());
        let (given, socket) = state.carry_out(Order::GiveBack, None);
        assert!(matches!(given, Answer::Failed(_)) && socket.is_none());
    }
}
