//! The files of the log: rotation by root in a directory of root, for a server that runs as another account.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::program::{Running, has_root, program, public_directory, text};

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
    let group = Permissions::from_mode(0o770);
    fs::set_permissions(&above, group).expect("set");
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
    let told = |line: &str| line.contains("ERROR") && line.contains("the log was not reloaded");
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
    site.wait_for("log-file", "has reopened its logs");
    work(&server);
    site.wait_for("log-file", "login failed");
    site.wait_for("audit-log", "\"login failed\"");
    site.wait_for("audit-log", "\"transfer finished\"");
    site.wait_for("transfer-log", "TYPE=RETR");
}
