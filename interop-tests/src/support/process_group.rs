//! A child process that leads its own process group, so that its descendants end with it.
//!
//! The real server forks a process for each session, and `gfal-*` and `lftp` fork helpers. Dropping
//! a [`ProcessGroup`] kills them all. When the test program itself is killed, no destructor runs; therefore
//! a *guardian* process waits on a pipe whose other end only this process holds, and kills the group when the pipe closes.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

/// Reads until its standard input closes, then kills the process group named by its argument.
const GUARDIAN: &str = "read -r _; kill -s KILL -- \"-$1\"";

/// A running child and its descendants.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    leader: Child,
    pid: Pid,
    /// Becomes readable when the leader ends; waiting for it does not reap the leader.
    ended: OwnedFd,
    guardian: Child,
    status: Option<ExitStatus>,
}

impl ProcessGroup {
    /// Starts `command` as the leader of a new process group.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut leader = command.process_group(0).spawn()?;
        let watched = Pid::from_child(&leader);
        let watch = pidfd_open(watched, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|ended| Ok((ended, guardian(watched)?)));
        match watch {
            Ok((ended, guardian)) => Ok(Self {
                leader,
                pid: watched,
                ended,
                guardian,
                status: None,
            }),
            Err(error) => {
                end(watched, &mut leader);
                Err(error)
            }
        }
    }

    /// The leader's process id, which is the group's.
    pub(crate) fn id(&self) -> u32 {
        self.leader.id()
    }

    /// The leader, for its pipes.
    pub(crate) fn leader(&mut self) -> &mut Child {
        &mut self.leader
    }

    /// Waits for the leader's end, for at most `limit`; `None` when it still runs.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.status {
            return Ok(Some(status));
        }
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(
                &mut [PollFd::new(&self.ended, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The process group id cannot be reused before the leader is reaped.
        self.kill();
        let status = self.leader.wait()?;
        self.status = Some(status);
        Ok(Some(status))
    }

    /// The processes of the group that run.
    pub(crate) fn members(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers
            .filter(|&process| group_of(process) == Some(self.pid.as_raw_nonzero().get()))
            .collect()
    }

    /// Kills the leader only; others of the group have to notice.
    pub(crate) fn kill_leader(&self) -> io::Result<()> {
        if self.status.is_none() {
            kill_process(self.pid, Signal::KILL)?;
        }
        Ok(())
    }

    /// Asks the leader to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        if self.status.is_none() {
            kill_process(self.pid, Signal::TERM)?;
        }
        Ok(())
    }

    /// Kills the remaining processes of the group.
    fn kill(&self) {
        // Fails only when the group has no process any more.
        let _ = kill_process_group(self.pid, Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // The guardian ends first: it must not kill a process group id that has been reused.
        let _ = self.guardian.kill();
        let _ = self.guardian.wait();
        if self.status.is_none() {
            end(self.pid, &mut self.leader);
        }
    }
}

/// The process group of a process that runs (proc_pid_stat(5): the third field behind the name).
fn group_of(process: u32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (state != "Z").then_some(group)
}

/// Kills the group of `leader` and reaps it.
fn end(pid: Pid, leader: &mut Child) {
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = leader.wait();
}

/// Starts the guardian of the group `pid`, in a group of its own.
fn guardian(pid: Pid) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new("/bin/sh")
        .args(["-c", GUARDIAN, "guardian"])
        .arg(pid.as_raw_nonzero().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read};

    #[test]
    fn dropping_a_group_kills_its_grandchildren() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "sleep 1000 & wait"])
            .stdout(Stdio::piped());
        let mut group = ProcessGroup::start(command).unwrap();
        let mut output = group.leader().stdout.take().unwrap();
        assert_eq!(group.wait(Duration::ZERO).unwrap(), None);
        drop(group);
        // The pipe ends when the last process that holds it has ended.
        assert_eq!(output.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_others_of_a_group_survive_the_leader() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped());
        let mut group = ProcessGroup::start(command).unwrap();
        let mut output = BufReader::new(group.leader().stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let other: u32 = line.trim_end().parse().unwrap();
        assert!(group.members().contains(&other));
        assert!(group.members().contains(&group.id()));
        group.kill_leader().unwrap();
        while group.members().contains(&group.id()) {
            std::thread::yield_now();
        }
        assert_eq!(group.members(), [other]);
    }

    #[test]
    fn the_guardian_kills_the_group_when_the_pipe_closes() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 1000 & wait"]);
        let mut group = ProcessGroup::start(command).unwrap();
        drop(group.guardian.stdin.take());
        let status = group
            .wait(Duration::from_secs(60))
            .unwrap()
            .expect("killed");
        assert!(!status.success());
    }
}
