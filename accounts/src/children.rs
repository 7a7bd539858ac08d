//! The processes that the monitor has started and that have not ended.
//!
//! The monitor counts them itself, in all and for each account. The process that asks it keeps to limits of its own,
//! and may have been taken over: it must not be able to fill the machine with processes of root's making.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, WaitOptions, getrlimit, kill_process, pidfd_open, setrlimit,
    waitpid,
};

/// Processes that open a file may live at a time. They take no longer than the file's system does.
const MOST_OPENERS: usize = 16;

/// A refusal is told at most this often.
const TOLD: Duration = Duration::from_secs(60);

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    /// A broker for this account.
    Broker(&'a str),
    /// It opens a file and ends.
    Open,
}

/// Processes of the monitor.
#[derive(Debug)]
pub(crate) struct Children {
    /// How many brokers there may be, and how many of one account.
    brokers: usize,
    of_account: usize,
    living: Vec<Child>,
    /// When a refusal was told.
    told: Option<Instant>,
}

#[derive(Debug)]
struct Child {
    pid: Pid,
    /// Readable when it has ended.
    ended: OwnedFd,
    /// Whose broker it is; `None` opens a file.
    account: Option<String>,
}

impl Children {
    /// None yet. The process that asks is meant to have up to `brokers` of them, and up to `of_account` for one account.
    /// Twice as many may live: one that was told to end may still be there when the next one starts.
    pub(crate) fn new(brokers: usize, of_account: usize) -> Self {
        Self {
            brokers: brokers.saturating_mul(2),
            of_account: of_account.saturating_mul(2),
            living: Vec::new(),
            told: None,
        }
    }

    /// Raises the limit of descriptors as far as it takes and can be done: each process has one.
    pub(crate) fn make_room_for_descriptors(&self) {
        /// Standard ones, the socket, and those of a process that is about to start.
        const OTHERS: usize = 32;

        let wanted = self.brokers.saturating_add(MOST_OPENERS + OTHERS) as u64;
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < wanted) {
            limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
            // Without it there are as many processes as there are descriptors, and the others are refused.
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }

    /// Whether another process may be started.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, if there are too many. Standard error is told, though not each time.
    pub(crate) fn admit(&mut self, work: Work<'_>) -> Result<(), Errno> {
        let Some(reason) = self.refusal(work) else {
            return Ok(());
        };
        if self.tells_now(Instant::now()) {
            eprintln!("gridhaul-server: the monitor starts no process: {reason}");
        }
        Err(Errno::AGAIN)
    }

    fn refusal(&self, work: Work<'_>) -> Option<String> {
        let Work::Broker(account) = work else {
            let openers = self.count(|living| living.is_none());
            return (openers >= MOST_OPENERS)
                .then(|| format!("{openers} that open files have not ended"));
        };
        let of_account = self.count(|living| living == Some(account));
        if of_account >= self.of_account {
            // The name comes from the request and is not trusted: it is cut.
            let name: String = account.chars().take(64).collect();
            return Some(format!("{of_account} act as the account {name:?} already"));
        }
        let brokers = self.count(|living| living.is_some());
        (brokers >= self.brokers).then(|| format!("{brokers} act as accounts already"))
    }

    fn count(&self, which: impl Fn(Option<&str>) -> bool) -> usize {
        let accounts = self.living.iter().map(|child| child.account.as_deref());
        accounts.filter(|account| which(*account)).count()
    }

    fn tells_now(&mut self, now: Instant) -> bool {
        let tells = self
            .told
            .is_none_or(|told| now.saturating_duration_since(told) >= TOLD);
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// Counts a process that was started.
    ///
    /// # Errors
    ///
    /// When it cannot be counted, and so was ended again.
    pub(crate) fn add(&mut self, pid: Pid, work: Work<'_>) -> Result<(), Errno> {
        // The number is its own until it has been waited for.
        let ended = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            let _ = kill_process(pid, Signal::KILL);
            let _ = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
        })?;
        let account = match work {
            Work::Broker(account) => Some(account.to_owned()),
            Work::Open => None,
        };
        self.living.push(Child {
            pid,
            ended,
            account,
        });
        Ok(())
    }

    /// Waits until there is something to read, and meanwhile for the processes that end.
    pub(crate) fn wait_for(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            let living = self.living.iter().map(|child| child.ended.as_fd());
            let mut polled: Vec<_> = std::iter::once(socket)
                .chain(living)
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            retry_on_intr(|| poll(&mut polled, None))?;
            let mut is_ready = polled.iter().map(|polled| !polled.revents().is_empty());
            let something_came = is_ready.next() == Some(true);
            let ended: Vec<bool> = is_ready.collect();
            let mut ended = ended.into_iter();
            self.living.retain(|child| {
                let has_ended = ended.next() == Some(true);
                if has_ended {
                    // It may be gone already: where SIGCHLD was ignored from the start, the kernel waits.
                    let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
                }
                !has_ended
            });
            if something_came {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::socket;

    #[expect(
        clippy::zombie_processes,
        reason = "those of the tests are waited for as the monitor does, or end with the program"
    )]
    fn sleeper() -> Pid {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        Pid::from_child(&child)
    }

    #[test]
    fn brokers_are_counted_in_all_and_leave_room_when_they_end() {
        let (message, sender) = socket::pair().unwrap();
        socket::send(&sender, b"x", &[]).unwrap();
        let mut children = Children::new(1, 1);
        let sleepers = ["alice", "bob"].map(|account| {
            assert_eq!(children.admit(Work::Broker(account)), Ok(()));
            let pid = sleeper();
            children.add(pid, Work::Broker(account)).unwrap();
            pid
        });
        assert_eq!(children.admit(Work::Broker("carol")), Err(Errno::AGAIN));
        assert_eq!(children.admit(Work::Open), Ok(()), "it is another kind");
        for (ended, pid) in sleepers.into_iter().enumerate() {
            kill_process(pid, Signal::KILL).unwrap();
            while children.living.len() > 1 - ended {
                children.wait_for(message.as_fd()).unwrap();
            }
            assert_eq!(children.admit(Work::Broker("carol")), Ok(()));
            assert_eq!(
                waitpid(Some(pid), WaitOptions::NOHANG).err(),
                Some(Errno::CHILD),
                "nothing is left of it"
            );
        }
    }

    #[test]
    fn those_that_open_files_are_few() {
        let mut children = Children::new(1, 1);
        let sleepers: Vec<_> = (0..MOST_OPENERS).map(|_| sleeper()).collect();
        for pid in &sleepers {
            assert_eq!(children.admit(Work::Open), Ok(()));
            children.add(*pid, Work::Open).unwrap();
        }
        assert_eq!(children.admit(Work::Open), Err(Errno::AGAIN));
        assert_eq!(children.admit(Work::Broker("alice")), Ok(()));
        for pid in sleepers {
            kill_process(pid, Signal::KILL).unwrap();
        }
    }

    #[test]
    fn a_refusal_is_told_once_a_minute() {
        let mut children = Children::new(1, 1);
        let start = Instant::now();
        assert!(children.tells_now(start));
        assert!(!children.tells_now(start + TOLD / 2));
        assert!(children.tells_now(start + TOLD));
        assert!(!children.tells_now(start + TOLD));
    }

    #[test]
    fn without_brokers_none_is_started() {
        let mut children = Children::new(0, 0);
        assert_eq!(children.admit(Work::Broker("alice")), Err(Errno::AGAIN));
        assert_eq!(children.admit(Work::Open), Ok(()));
    }
}
