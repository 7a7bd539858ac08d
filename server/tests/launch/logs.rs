//! The files of the log: rotation by root in a directory of root, for a server that runs as another account.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::processes::{child, kill};
use crate::program::{Running, fails, has_root, program, public_directory, text};

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A served directory, and one for logs that only root may enter.
struct Site {
    root: TempDir,
    logs: TempDir,
}

impl Site {
    fn new() -> Self {
        let root = public_directory();
        fs::write(root.path().join("file"), "content").expect("written");
        let logs = tempfile::tempdir().expect("a directory");
        let only_root = Permissions::from_mode(0o700);
        fs::set_permissions(logs.path(), only_root).expect("set");
        Self { root, logs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.logs.path().join(name)
    }

    fn flags(&self) -> Vec<String> {
        let logs = ["log-file", "transfer-log", "audit-log"];
        let logs = logs.map(|name| [format!("--{name}"), text(&self.path(name)).to_owned()]);
        let mut flags = logs.concat();
        flags.push("--anonymous".to_owned());
        flags
    }

    fn serve(&self) -> Running {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Running::start(self.root.path(), &flags)
    }

    /// Renames a log, as programs for rotation do.
    fn rotate(&self, name: &str) {
        fs::rename(self.path(name), self.path(&format!("{name}.1"))).expect("renamed");
    }

    /// Waits for words in a log.
    fn wait_for(&self, name: &str, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = fs::read_to_string(self.path(name)).unwrap_or_default();
            if log.contains(words) {
                return log;
            }
            assert!(begun.elapsed() < TIME_LIMIT, "{words} is not in {log}");
            std::thread::yield_now();
        }
    }
}

/// A session that gets a file, and a login that is refused.
fn work(server: &Running) {
    let replies = server.dialogue(&["USER nobody-knows", "PASS x", "USER anonymous", "PASS x"]);
    assert!(replies[2].starts_with("530"), "{replies:?}");
    assert!(replies[4].starts_with("230"), "{replies:?}");
    let (mut client, _) = Client::connect(server);
    for line in ["USER anonymous", "PASS x"] {
        client.send(line);
    }
    let mut data = client.retrieve("file");
    let mut content = String::new();
    std::io::Read::read_to_string(&mut data, &mut content).expect("received");
    assert_eq!(content, "content");
    assert!(client.reply().starts_with("226"));
}

#[test]
fn logs_in_a_directory_of_root_are_opened_again_after_a_rotation() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let server = site.serve();
    work(&server);
    site.wait_for("log-file", "transfer finished");
    for name in ["log-file", "transfer-log", "audit-log"] {
        site.rotate(name);
    }
    server.signal(Signal::HUP);
    // Each process says so in the new file.
    site.wait_for("log-file", " reloaded");
    site.wait_for("log-file", "login process has read");
    site.wait_for("log-file", "listens has read");
    work(&server);
    // By the front process, and by the server.
    let log = site.wait_for("log-file", "login failed");
    assert!(!log.contains("ERROR"), "{log}");
    site.wait_for("log-file", "transfer finished");
    site.wait_for("transfer-log", "TYPE=RETR");
    site.wait_for("audit-log", "\"login failed\"");
    site.wait_for("audit-log", "\"transfer finished\"");
    for name in ["log-file", "transfer-log", "audit-log"] {
        let mode = fs::metadata(site.path(name)).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777 & !0o640, 0, "{name}");
    }
    let (status, _) = server.stop();
    assert_eq!(status, 0);
}

#[test]
fn a_log_that_cannot_be_opened_again_stays_in_use_and_the_check_has_told_so() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let check = || {
        let flags = site.flags();
        let mut check = program();
        check.args(["check", "--listen", "127.0.0.1:0", "--root"]);
        let output = check.arg(site.root.path()).args(flags).output();
        String::from_utf8(output.expect("started").stdout).expect("UTF-8")
    };
    let report = check();
    for about in ["log-file", "transfer-log", "audit-log"] {
        assert!(report.contains(&format!("ok       {about}:")), "{report}");
    }
    assert!(!report.contains("after a rotation"), "{report}");
    // Another account could put a link there.
    let all = Permissions::from_mode(0o1777);
    fs::set_permissions(site.logs.path(), all).expect("set");
    let above = site.logs.path().join("above");
    fs::create_dir(&above).expect("made");
    let log = text(&above.join("log")).to_owned();
    let server = Running::start(site.root.path(), &["--anonymous", "--log-file", &log]);
    std::os::unix::fs::chown(&above, Some(54_322), None).expect("given");
    let mut check = program();
    check.args(["check", "--listen", "127.0.0.1:0", "--root"]);
    check
        .arg(site.root.path())
        .args(["--anonymous", "--log-file", &log]);
    let output = check.output().expect("started").stdout;
    let report = String::from_utf8_lossy(&output).into_owned();
    let told = report.contains("after a rotation") && report.contains("other than root");
    assert!(told, "{report}");

    let moved = above.join("log.1");
    fs::rename(&log, &moved).expect("renamed");
    server.signal(Signal::HUP);
    let begun = Instant::now();
    while !fs::read_to_string(&moved)
        .expect("read")
        .contains(" reloaded")
    {
        assert!(begun.elapsed() < TIME_LIMIT);
        std::thread::yield_now();
    }
    server.dialogue(&["USER anonymous", "PASS x"]);
    let (_, _) = server.stop();
    let log = fs::read_to_string(&moved).expect("read");
    let told = |line: &str| line.contains("ERROR") && line.contains("the logs were not reopened");
    assert!(log.lines().any(told), "{log}");
    assert!(log.contains("logged in"), "{log}");
}

/// The account that serves may write to the directory of the log, and puts a link there.
#[test]
fn links_of_the_account_that_serves_lead_root_to_no_other_file() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let (logs, secret) = (
        site.root.path().join("logs"),
        site.logs.path().join("secret"),
    );
    fs::create_dir(&logs).expect("made");
    std::os::unix::fs::chown(&logs, Some(65_534), Some(65_534)).expect("given");
    let log = logs.join("log");
    std::os::unix::fs::symlink(&secret, &log).expect("linked");
    let mut serve = program();
    serve.args(["serve", "--anonymous", "--listen", "127.0.0.1:0", "--root"]);
    let serve = serve.arg(site.root.path()).args(["--log-file", text(&log)]);
    let output = serve.output().expect("started");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    assert!(
        told.contains("only root write to its directories"),
        "{told}"
    );
    assert!(!secret.exists());
    // Its own log is fine.
    fs::remove_file(&log).expect("removed");
    let _server = Running::start(site.root.path(), &["--anonymous", "--log-file", text(&log)]);
    assert!(log.exists());
}

/// The files that a process has open, by the names in `/proc`.
fn open_files(process: u32) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("a process");
    let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.collect()
}

/// Each process that could be taken over would be able to cut a file that it has open for appending: the kernel lets it clear
/// `O_APPEND`, and `ftruncate` does not look at it.
#[test]
fn only_the_log_process_has_a_log_open() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let server = site.serve();
    let logs = ["log-file", "transfer-log", "audit-log"].map(|name| site.path(name));
    let check = || {
        let held = open_files(child(&server, "gh-logs"));
        for log in &logs {
            assert!(held.contains(log), "{held:?}");
        }
        let others = ["gh-front", "gh-login", "gh-monitor"];
        let others = others.map(|name| child(&server, name));
        for process in others.into_iter().chain([server.id()]) {
            let held = open_files(process);
            let is_log = |file: &PathBuf| file.starts_with(site.logs.path());
            assert!(!held.iter().any(is_log), "{process}: {held:?}");
        }
    };
    work(&server);
    check();
    site.wait_for("transfer-log", "TYPE=RETR");
    for name in ["log-file", "transfer-log", "audit-log"] {
        site.rotate(name);
    }
    server.signal(Signal::HUP);
    site.wait_for("log-file", " reloaded");
    check();
}

#[test]
fn the_last_lines_of_a_server_are_in_its_log_when_it_has_ended() {
    let root = public_directory();
    let logs = tempfile::tempdir().expect("a directory");
    let log = logs.path().join("log");
    let server = Running::start(root.path(), &["--anonymous", "--log-file", text(&log)]);
    let (status, _) = server.stop();
    assert_eq!(status, 0);
    let log = fs::read_to_string(log).expect("read");
    assert!(log.contains("shutting down"), "{log}");
}

#[test]
fn without_the_log_process_the_server_ends_with_an_error() {
    let root = public_directory();
    let logs = tempfile::tempdir().expect("a directory");
    let log = logs.path().join("log");
    let server = Running::start(root.path(), &["--anonymous", "--log-file", text(&log)]);
    kill(&server, "gh-logs");
    let (status, told) = server.ended();
    assert_eq!(status, 1, "the service manager starts it again");
    assert!(told.contains("the process that writes the logs"), "{told}");
}

/// `/var/log` of Ubuntu belongs to the group `syslog` too, which may write to it.
#[test]
fn logs_in_a_directory_that_a_group_may_write_to_are_opened_and_links_there_are_refused() {
    if !has_root() {
        return;
    }
    const GROUP: u32 = 54_321;

    let site = Site::new();
    let shared = Permissions::from_mode(0o775);
    std::os::unix::fs::chown(site.logs.path(), None, Some(GROUP)).expect("given");
    fs::set_permissions(site.logs.path(), shared).expect("set");
    let server = site.serve();
    work(&server);
    site.wait_for("transfer-log", "TYPE=RETR");
    let names = ["log-file", "transfer-log", "audit-log"];
    for name in names {
        site.rotate(name);
    }
    server.signal(Signal::HUP);
    site.wait_for("log-file", " reloaded");
    work(&server);
    site.wait_for("transfer-log", "TYPE=RETR");
    site.wait_for("audit-log", "\"transfer finished\"");
    // What another member of the group puts there is not written to, and the old file stays in use.
    let secret = site.root.path().join("secret");
    fs::write(&secret, "secret").expect("written");
    fs::rename(site.path("audit-log"), site.path("audit-log.2")).expect("renamed");
    fs::hard_link(&secret, site.path("audit-log")).expect("linked");
    server.signal(Signal::HUP);
    let log = site.wait_for("log-file", "the logs were not reopened");
    assert!(
        log.contains("let only root write to its directory"),
        "{log}"
    );
    work(&server);
    let (status, _) = server.stop();
    assert_eq!(status, 0);
    assert_eq!(fs::read_to_string(&secret).expect("read"), "secret");
    let audit = fs::read_to_string(site.path("audit-log.2")).expect("read");
    assert_eq!(audit.matches("transfer finished").count(), 2, "{audit}");
    // A new server does not start with it, nor with a symbolic link.
    let start = || {
        let mut serve = program();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--root"]);
        fails(serve.arg(site.root.path()).args(site.flags()))
    };
    let refused = || {
        let told = start();
        assert!(
            told.contains("let only root write to its directory"),
            "{told}"
        );
    };
    refused();
    fs::remove_file(site.path("audit-log")).expect("removed");
    std::os::unix::fs::symlink(&secret, site.path("audit-log")).expect("linked");
    refused();
    assert_eq!(fs::read_to_string(&secret).expect("read"), "secret");
    // Nor does it wait for the reader of a FIFO.
    fs::remove_file(site.path("audit-log")).expect("removed");
    let owner = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, site.path("audit-log"), fifo, owner, 0).expect("made");
    let told = start();
    assert!(told.contains("audit-log"), "{told}");
}

#[test]
fn a_wrong_configuration_does_not_leave_rotated_logs_in_use() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let config = site.root.path().join("config.toml");
    fs::write(&config, "banner = \"hello\"\n").expect("written");
    let mut flags = site.flags();
    flags.extend(["--config".to_owned(), text(&config).to_owned()]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Running::start(site.root.path(), &flags);
    work(&server);
    for name in ["log-file", "transfer-log", "audit-log"] {
        site.wait_for(name, "file");
        site.rotate(name);
    }
    fs::write(&config, "no-such-key = 1\n").expect("written");
    server.signal(Signal::HUP);
    site.wait_for("log-file", "the configuration is wrong");
    work(&server);
    site.wait_for("log-file", "login failed");
    site.wait_for("audit-log", "\"login failed\"");
    site.wait_for("audit-log", "\"transfer finished\"");
    site.wait_for("transfer-log", "TYPE=RETR");
}

#[test]
fn a_full_disk_with_the_log_and_standard_error_does_not_end_the_audit_log() {
    let site = Site::new();
    let audit = site.path("audit-log");
    let mut serve = program();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"]);
    serve
        .arg(site.root.path())
        .args(["--log-file", "/dev/full"]);
    serve.args(["--audit-log", text(&audit)]);
    let private = tempfile::tempdir().expect("a directory");
    let socket = private.path().join("admin.sock");
    serve.args(["--admin-socket", text(&socket)]);
    let server = Running::without_standard_error(&mut serve);
    work(&server);
    site.wait_for("audit-log", "\"login failed\"");
    // A record of the process whose lines could not be written.
    site.wait_for("audit-log", "\"transfer finished\"");
    let status = program()
        .args(["status", "--socket", text(&socket)])
        .output()
        .expect("started");
    let status = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(
        status.contains("a log line could not be written: free space"),
        "{status}"
    );
}

/// The account that serves may write to the directory of the log, and puts a FIFO there.
#[test]
fn a_fifo_in_place_of_a_log_keeps_the_server_neither_from_serving_nor_from_its_end() {
    if !has_root() {
        return;
    }
    const NOBODY: Option<u32> = Some(65_534);

    let site = Site::new();
    let logs = site.root.path().join("logs");
    fs::create_dir(&logs).expect("made");
    std::os::unix::fs::chown(&logs, NOBODY, NOBODY).expect("given");
    let (log, moved) = (logs.join("log"), logs.join("log.1"));
    let server = Running::start(site.root.path(), &["--anonymous", "--log-file", text(&log)]);
    fs::rename(&log, &moved).expect("renamed");
    let (owner, fifo) = (rustix::fs::Mode::RWXU, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, &log, fifo, owner, 0).expect("made");
    std::os::unix::fs::chown(&log, NOBODY, NOBODY).expect("given");
    server.signal(Signal::HUP);
    let begun = Instant::now();
    while !fs::read_to_string(&moved)
        .expect("read")
        .contains("the logs were not reopened")
    {
        assert!(begun.elapsed() < TIME_LIMIT);
        std::thread::yield_now();
    }
    work(&server);
    let (status, _) = server.stop_all();
    assert_eq!(status, 0);
    let log = fs::read_to_string(&moved).expect("read");
    assert!(log.contains("transfer finished") && log.contains("shutting down"));
}
