//! What the program's processes have given up when they serve.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::program::{Running, has_root, public_directory};
use crate::security::{Site, as_str};
use gridhaul_skip::skipped;

/// What `/proc/PID/status` says of each thread of a process.
fn threads(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let statuses = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        fs::read_to_string(task.ok()?.path().join("status")).ok()
    });
    statuses.collect()
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let text = text.expect("a process");
    let numbers = text.split_ascii_whitespace().map(str::parse);
    numbers.collect::<Result<_, _>>().expect("numbers")
}

/// Every thread is under a filter (mode 2), and cannot gain rights.
pub(crate) fn is_confined(process: u32) {
    let threads = threads(process);
    assert!(!threads.is_empty());
    for status in threads {
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
    }
}

#[test]
fn every_thread_of_the_server_is_confined() {
    let root = public_directory();
    fs::write(root.path().join("f"), "x").expect("written");
    let server = Running::start(root.path(), &["--anonymous"]);
    // The session's work on files has threads of its own.
    let replies = server.dialogue(&["USER ftp", "PASS x", "TYPE I", "SIZE f"]);
    assert_eq!(replies[4], "213 1");
    assert!(threads(server.id()).len() > 1);
    is_confined(server.id());
    let (_, log) = server.stop();
    assert!(log.contains(" confined "), "{log}");
}

#[test]
fn the_process_with_roots_rights_is_confined() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let server = Running::start(Path::new("/"), &as_str(&site.flags()));
    let children = children(server.id());
    assert!(!children.is_empty());
    for process in children {
        is_confined(process);
    }
    is_confined(server.id());
}

#[test]
fn a_reload_says_which_paths_need_a_restart() {
    if gridhaul_sandbox::landlock_abi().is_none() {
        skipped("this kernel has no Landlock, or an old one");
        return;
    }
    let (site, other) = (public_directory(), public_directory());
    let root = site.path().join("root");
    fs::create_dir(&root).expect("made");
    let file = site.path().join("config.toml");
    fs::write(&file, "anonymous = true\n").expect("written");
    let config = file.to_str().expect("UTF-8");
    let mut server = Running::start(&root, &["--config", config]);
    let passwords = other.path().join("passwords");
    fs::write(&passwords, "").expect("written");
    let named = format!(
        "anonymous = true\npasswords = \"{}\"\n",
        passwords.display()
    );
    fs::write(&file, named).expect("written");
    server.signal(Signal::HUP);
    let words = format!(
        "not in the sandbox: restart the server to use this path path={}",
        passwords.display()
    );
    let log = server.log_until("not everything was reloaded");
    assert!(log.contains(&words), "{log}");
    assert!(log.contains("Permission denied"), "{log}");
}
