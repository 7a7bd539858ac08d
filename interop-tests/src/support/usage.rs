//! The resources that a server and its descendants use, and the processor time of the whole machine.
//!
//! They are read from `/proc`, so that this works for any program and without control groups. Descendants are found by
//! their parent: a process that was re-parented to `init` is no longer counted.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Ticks of a second in `/proc/PID/stat`: USER_HZ, which is 100 on every supported Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The busy time of all processors together since the machine started, with that of its kernel.
///
/// # Errors
///
/// When it cannot be read.
pub fn busy_time() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // proc_stat(5): user, nice, system, idle, iowait, irq, softirq.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&at| ticks.get(at)).sum();
    Ok(Duration::from_millis(busy * 1000 / TICKS_PER_SECOND))
}

/// A process and all its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTree {
    pid: u32,
}

/// The resources of a process tree at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processes.
    pub processes: usize,
    /// Threads of all processes.
    pub threads: usize,
    /// Open descriptors of all processes.
    pub descriptors: usize,
    /// Proportional set size (PSS) in bytes. File-backed pages are left out: their shares change when another process
    /// runs the same program.
    pub memory: u64,
}

impl ProcessTree {
    /// The tree under this process.
    pub fn of(pid: u32) -> Self {
        Self { pid }
    }

    /// The present usage. A process that ends meanwhile counts with the values that could be read.
    pub fn usage(self) -> Usage {
        let mut usage = Usage::default();
        for process in self.members() {
            usage.processes += 1;
            usage.threads += entries(process.pid, "task");
            usage.descriptors += entries(process.pid, "fd");
            usage.memory += proportional_set_size(process.pid);
        }
        usage
    }

    /// The number of processes, including the first.
    pub fn processes(self) -> usize {
        self.members().len()
    }

    /// The processor time of the tree, including reaped processes.
    pub fn processor_time(self) -> Duration {
        let ticks: u64 = self.members().iter().map(|process| process.ticks).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    /// The largest peak resident set size (`VmHWM`) of the processes, in bytes.
    pub fn peak_memory(self) -> u64 {
        let members = self.members().into_iter();
        members
            .map(|process| peak_memory(process.pid))
            .max()
            .unwrap_or(0)
    }

    fn members(self) -> Vec<Process> {
        let mut others: Vec<Process> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Process::read)
            .collect();
        let (mut members, rest) = others
            .drain(..)
            .partition(|process| process.pid == self.pid);
        others = rest;
        // A child may have a smaller process id than its parent: repeat until no child is found.
        loop {
            let is_child = |process: &Process| {
                members
                    .iter()
                    .any(|member: &Process| member.pid == process.parent)
            };
            let (found, rest): (Vec<_>, Vec<_>) = others.drain(..).partition(is_child);
            if found.is_empty() {
                return members;
            }
            members.extend(found);
            others = rest;
        }
    }
}

impl Usage {
    /// The maximum of each value.
    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            processes: self.processes.max(other.processes),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
            memory: self.memory.max(other.memory),
        }
    }
}

/// Raises the soft limit of open descriptors to the hard limit: each session, data channel
/// and port takes a descriptor. Programs that are started later inherit the limit.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, opening more descriptors fails with EMFILE.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[derive(Debug)]
struct Process {
    pid: u32,
    parent: u32,
    /// The sum of utime, stime, cutime and cstime: its own time and that of reaped children.
    ticks: u64,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = read(pid, "stat");
        // The command name in parentheses may contain spaces and parentheses. The state (field 3), the parent (4) and
        // the times (14 to 17) follow it: proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields
            .get(11..15)?
            .iter()
            .filter_map(|ticks| ticks.parse::<u64>().ok());
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            ticks: ticks.sum(),
        })
    }
}

fn proportional_set_size(pid: u32) -> u64 {
    let rollup = read(pid, "smaps_rollup");
    let lines = rollup.lines().filter_map(|line| {
        let own = ["Pss_Anon:", "Pss_Shmem:"];
        own.iter().find_map(|name| line.strip_prefix(name))
    });
    lines.map(kibibytes).sum()
}

fn peak_memory(pid: u32) -> u64 {
    let status = read(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, kibibytes)
}

fn kibibytes(field: &str) -> u64 {
    let number = field.split_whitespace().next();
    number
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn entries(pid: u32, directory: &str) -> usize {
    fs::read_dir(path(pid, directory)).map_or(0, Iterator::count)
}

fn read(pid: u32, file: &str) -> String {
    // The command name may contain any bytes.
    String::from_utf8_lossy(&fs::read(path(pid, file)).unwrap_or_default()).into_owned()
}

fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_and_its_child_are_a_tree() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 1000 & wait"])
            .spawn()
            .unwrap();
        let tree = ProcessTree::of(shell.id());
        while tree.processes() < 2 {
            std::thread::yield_now();
        }
        let usage = tree.usage();
        assert!(
            usage.threads >= 2 && usage.descriptors >= 6 && usage.memory > 0,
            "{usage:?}"
        );
        for process in tree.members() {
            let killed = Command::new("kill")
                .arg(process.pid.to_string())
                .status()
                .unwrap();
            assert!(killed.success());
        }
        shell.wait().unwrap();
        assert_eq!(tree.processes(), 0);
    }

    #[test]
    fn the_time_of_a_reaped_child_counts() {
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; read -r _",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let tree = ProcessTree::of(shell.id());
        while tree.processor_time() < Duration::from_millis(50) || tree.processes() > 1 {
            std::thread::yield_now();
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
