//! An account whose files hang does not affect others.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::GsiControl;
use rustix::process::{Pid, Signal, kill_process};

use super::Site;

const AT_ONCE: Duration = Duration::from_secs(10);

/// A field of `/proc/PID/status`.
fn status(pid: i32, field: &str) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processes beneath `top`.
pub(super) fn descendants(top: i32) -> Vec<i32> {
    let names = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok()
    });
    let is_beneath = |pid: &i32| {
        let parents = std::iter::successors(status(*pid, "PPid:"), |pid| status(*pid, "PPid:"));
        parents.take(8).any(|parent| parent == top)
    };
    names.filter(is_beneath).collect()
}

/// The broker of an account, stopped until this is dropped: it simulates a file system that hangs.
struct Stopped(Pid);

impl Stopped {
    fn only_broker(server: u32) -> Self {
        let server = i32::try_from(server).unwrap();
        let found = descendants(server);
        // The server also has processes that are no brokers.
        let is_broker = |pid: &i32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.starts_with("gh-broker:"))
        };
        let mut brokers = found.into_iter().filter(is_broker);
        let broker = Pid::from_raw(brokers.next().unwrap()).unwrap();
        kill_process(broker, Signal::STOP).unwrap();
        let stopped = Self(broker);
        let stat = format!("/proc/{}/stat", broker.as_raw_nonzero());
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            thread::yield_now();
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn an_account_whose_files_hang_does_not_block_others() {
    let site = Site::new(&["--file-threads", "8"]);
    if !site.pki.accounts().differ() {
        eprintln!("only root can act for other accounts");
        return;
    }
    let mut sessions: Vec<GsiControl> = (0..12).map(|_| site.session()).collect();
    let _stopped = Stopped::only_broker(site.fixture.server.pid());
    for session in &mut sessions {
        session.send_line("MLST hello.txt").unwrap();
    }
    let begin = Instant::now();
    let mut bob = GsiControl::logged_in(site.fixture.address(), &site.bob()).unwrap();
    bob.must("MLST", 250).unwrap();
    let path = site.fixture.path("");
    bob.must(&format!("MLSC {path}"), 250).unwrap();
    assert!(begin.elapsed() < AT_ONCE, "it took {:?}", begin.elapsed());
}
