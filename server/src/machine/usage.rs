//! What other processes take from the machine.

use std::fs;
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};

use super::processor_time::processor_time;

/// The resources of a process, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) processor_time: Duration,
    /// Zero where the kernel does not tell: `/proc` may be mounted with `hidepid`.
    pub(crate) resident_bytes: u64,
}

impl Usage {
    fn and(self, other: Self) -> Self {
        Self {
            processor_time: self.processor_time.saturating_add(other.processor_time),
            resident_bytes: self.resident_bytes.saturating_add(other.resident_bytes),
        }
    }
}

/// The resources of a process, without its children.
pub(crate) fn usage(process: u32) -> Usage {
    Usage {
        processor_time: processor_time(process),
        resident_bytes: field(&stat(process), 24).saturating_mul(page_size() as u64),
    }
}

/// The resources of the children of a process: the time of those that have ended, too.
pub(crate) fn usage_of_children(process: u32) -> Usage {
    let ticks = clock_ticks_per_second().max(1);
    // proc_pid_stat(5): cutime and cstime.
    let of_parent = stat(process);
    let ended = field(&of_parent, 16).saturating_add(field(&of_parent, 17));
    let ended = Usage {
        processor_time: Duration::from_millis(ended.saturating_mul(1000) / ticks),
        resident_bytes: 0,
    };
    children(process).map(usage).fold(ended, Usage::and)
}

/// The children of a process with one thread.
fn children(process: u32) -> impl Iterator<Item = u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let list = list.unwrap_or_default();
    let children: Vec<u32> = list
        .split_ascii_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect();
    children.into_iter()
}

fn stat(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

/// A field of proc_pid_stat(5) from the third one on; zero if it is not there.
fn field(stat: &str, number: usize) -> u64 {
    // The name of the program, in parentheses, may contain anything.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace();
    let found = fields.nth(number - 3).and_then(|field| field.parse().ok());
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_time_of_children_counts_while_they_run_and_after_their_end() {
        // A parent with one thread: the shell starts a child that works and says so.
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; read x";
        let mut parent = Command::new("sh")
            .args(["-c", &format!("sh -c '{script}'; echo ended; read x")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut lines = std::io::BufReader::new(parent.stdout.take().expect("piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut lines, &mut line).expect("read");
        let running = usage_of_children(parent.id());
        assert!(
            running.processor_time >= Duration::from_millis(20),
            "{running:?}"
        );
        assert!(running.resident_bytes > 0);
        let mut stdin = parent.stdin.take().expect("piped");
        std::io::Write::write_all(&mut stdin, b"\n").expect("sent");
        std::io::BufRead::read_line(&mut lines, &mut line).expect("read");
        let ended = usage_of_children(parent.id());
        let tick = Duration::from_millis(20);
        assert!(
            ended.processor_time + tick >= running.processor_time,
            "{ended:?}"
        );
        assert_eq!(ended.resident_bytes, 0);
        drop(stdin);
        parent.wait().expect("ended");
    }
}
