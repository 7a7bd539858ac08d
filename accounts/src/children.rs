//! The running child processes of the monitor.
//!
//! The monitor limits their number itself, in total and for each account. The login process has limits of its own, but if it
//! is compromised it must not be able to start an unlimited number of processes.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, WaitOptions, getrlimit, kill_process, pidfd_open, setrlimit,
    waitpid,
};

/// The maximum number of processes that open a file. They end when the file system has answered.
const MOST_OPENERS: usize = 16;

/// The minimum interval between messages about refusals.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(60);

/// The task of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    /// A broker for this account.
    Broker(&'a str),
    /// It opens a file, or leases an account of a pool, and ends.
    Open,
}

/// The child processes of the monitor.
#[derive(Debug)]
pub(crate) struct Children {
    /// The maximum number of brokers, and of brokers of one account.
    brokers: usize,
    of_account: usize,
    living: Vec<Child>,
    /// The time of the last message about a refusal.
    told: Option<Instant>,
}

#[derive(Debug)]
struct Child {
    pid: Pid,
    /// Readable when it has ended.
    ended: OwnedFd,
    /// The account of a broker; `None` opens a file.
    account: Option<String>,
}

impl Children {
    /// The login process is expected to have up to `brokers` brokers, and up to `of_account` for one account. Twice as many are
    /// permitted, because a broker that was told to end may still run when the next one starts.
    pub(crate) fn new(brokers: usize, of_account: usize) -> Self {
        Self {
            brokers: brokers.saturating_mul(2),
            of_account: of_account.saturating_mul(2),
            living: Vec::new(),
            told: None,
        }
    }

    /// Raises the limit of descriptors as far as necessary and possible: each process needs one.
    pub(crate) fn make_room_for_descriptors(&self) {
        /// Standard descriptors, the socket, and those of a process that is being started.
        const OTHERS: usize = 32;

        let wanted = self.brokers.saturating_add(MOST_OPENERS + OTHERS) as u64;
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < wanted) {
            limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
            // If this fails, the number of processes is limited by that of descriptors.
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }

    /// Checks whether another process may be started.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, if there are too many. Some refusals are reported on standard error.
    pub(crate) fn admit(&mut self, work: Work<'_>) -> Result<(), Errno> {
        let Some(reason) = self.refusal(work) else {
            return Ok(());
        };
        if self.tells_now(Instant::now()) {
            crate::process::tell(format_args!("the monitor starts no process: {reason}"));
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
            // The name is from the request and not trusted: it is truncated.
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
            .is_none_or(|told| now.saturating_duration_since(told) >= MESSAGE_INTERVAL);
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// Counts a new process.
    ///
    /// # Errors
    ///
    /// When it cannot be tracked. It was killed then.
    pub(crate) fn add(&mut self, pid: Pid, work: Work<'_>) -> Result<(), Errno> {
        // The pid is not reused before the process was waited for.
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

    /// Waits until the socket is readable, and meanwhile reaps processes that end.
    pub(crate) fn wait_for(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            let living = self.living.iter().map(|child| child.ended.as_fd());
            let mut polled: Vec<_> = std::iter::once(socket)
                .chain(living)
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            retry_on_intr(|| poll(&mut polled, None))?;
            let mut is_ready = polled.iter().map(|polled| !polled.revents().is_empty());
            let is_readable = is_ready.next() == Some(true);
            let ended: Vec<bool> = is_ready.collect();
            let mut ended = ended.into_iter();
            self.living.retain(|child| {
                let has_ended = ended.next() == Some(true);
                if has_ended {
                    // Fails if SIGCHLD is ignored: then the kernel has reaped the process.
                    let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
                }
                !has_ended
            });
            if is_readable {
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
        assert_eq!(
            children.admit(Work::Open),
            Ok(()),
            "it has a limit of its own"
        );
        for (ended, pid) in sleepers.into_iter().enumerate() {
            kill_process(pid, Signal::KILL).unwrap();
            while children.living.len() > 1 - ended {
                children.wait_for(message.as_fd()).unwrap();
            }
            assert_eq!(children.admit(Work::Broker("carol")), Ok(()));
            assert_eq!(
                waitpid(Some(pid), WaitOptions::NOHANG).err(),
                Some(Errno::CHILD),
                "it was reaped"
            );
        }
    }

    #[test]
    fn processes_that_open_files_are_limited() {
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
    fn refusals_are_reported_once_a_minute() {
        let mut children = Children::new(1, 1);
        let start = Instant::now();
        assert!(children.tells_now(start));
        assert!(!children.tells_now(start + MESSAGE_INTERVAL / 2));
        assert!(children.tells_now(start + MESSAGE_INTERVAL));
        assert!(!children.tells_now(start + MESSAGE_INTERVAL));
    }

    #[test]
    fn without_brokers_none_is_started() {
        let mut children = Children::new(0, 0);
        assert_eq!(children.admit(Work::Broker("alice")), Err(Errno::AGAIN));
        assert_eq!(children.admit(Work::Open), Ok(()));
    }
}
