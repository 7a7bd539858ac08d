//! The confinement of every process of a server, read from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::Site;
use super::hung::descendants;

/// linux/capability.h.
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;
const READ_ALL: u64 = 1 << 2;
const SET_BOUNDS: u64 = 1 << 8;

/// Titles and values of a `status` file in `/proc`.
type Status = BTreeMap<String, String>;

/// Each thread of a process. One may end meanwhile.
fn threads(process: i32) -> Vec<Status> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter();
    let texts = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    texts
        .map(|text| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines
                .map(|(title, value)| (title.to_owned(), value.trim().to_owned()))
                .collect()
        })
        .collect()
}

fn capabilities(status: &Status, set: &str) -> u64 {
    u64::from_str_radix(&status[set], 16).unwrap()
}

fn processes(site: &Site) -> Vec<i32> {
    let server = i32::try_from(site.fixture.server.pid()).unwrap();
    let mut all = descendants(server);
    all.push(server);
    all.sort_unstable();
    all.dedup();
    all
}

/// The name of a process, which is that of its first thread, without the account of a broker.
fn name(process: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    let name = name.unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    name.trim_end().to_owned()
}

#[test]
fn every_process_is_confined() {
    let site = Site::new(&[]);
    let mut session = site.session();
    site.session_works(&mut session);
    let has_accounts = site.pki.accounts().differ();
    let mut expected = BTreeSet::from(["gh-front", "gh-launcher", "gridhaul-server", "gh-login"]);
    if has_accounts {
        expected.extend(["gh-monitor", "gh-broker"]);
    } else {
        eprintln!("SKIPPED for monitor and broker: only root can act for other accounts");
    }
    let mut seen = BTreeSet::new();
    for process in processes(&site) {
        let name = name(process);
        let threads = threads(process);
        for status in &threads {
            assert_eq!(status["NoNewPrivs"], "1", "{name}: {status:?}");
            assert_eq!(status["Seccomp"], "2", "{name}: {status:?}");
            // The launcher keeps the rights of the start for the next version.
            if has_accounts && name != "gh-launcher" {
                has_capabilities(&name, status);
            }
        }
        if !threads.is_empty() {
            seen.insert(name);
        }
    }
    assert_eq!(seen, expected.into_iter().map(str::to_owned).collect());
}

fn has_capabilities(name: &str, status: &Status) {
    // A container starts with fewer capabilities.
    let own = threads(i32::try_from(std::process::id()).unwrap()).remove(0);
    let own = capabilities(&own, "CapPrm");
    let monitors = (SETUID | SETGID | READ_ALL) & own;
    let (held, ever) = match name {
        "gh-monitor" => (monitors, monitors),
        // The seccomp rules of a broker prevent execve(2), which could use the bounding set.
        "gh-broker" => (0, monitors),
        _ => (0, 0),
    };
    for (set, expected) in [
        ("CapEff", held),
        ("CapPrm", held),
        ("CapBnd", ever),
        ("CapInh", 0),
        ("CapAmb", 0),
    ] {
        if set == "CapBnd" && own & SET_BOUNDS == 0 {
            continue;
        }
        assert_eq!(
            capabilities(status, set),
            expected,
            "{name} {set}: {status:?}"
        );
    }
    let is_root = status["Uid"].split_whitespace().any(|uid| uid == "0");
    assert_eq!(is_root, name == "gh-monitor", "{name}: {status:?}");
}
