//! A server started as root, whose files only root may read, and which reads them again on SIGHUP.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::program::{Running, has_root, program, public_directory, text};

/// A root for all, and a directory for root alone.
struct Site {
    served: TempDir,
    private: TempDir,
}

impl Site {
    fn new() -> Self {
        let private = tempfile::tempdir().expect("a directory");
        fs::set_permissions(private.path(), Permissions::from_mode(0o700)).expect("set");
        Self {
            served: public_directory(),
            private,
        }
    }

    fn private(&self, name: &str) -> PathBuf {
        self.private.path().join(name)
    }

    fn serve(&self, flags: &[&str]) -> Running {
        // Wrong passwords have penalties.
        let mut all = vec!["--penalty-exempt", "127.0.0.0/8"];
        all.extend(flags);
        Running::start(self.served.path(), &all)
    }
}

/// Gives a user a password, as an administrator does.
fn set_password(file: &Path, name: &str, password: &str) {
    let mut child = program()
        .arg("passwd")
        .arg(file)
        .arg(name)
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "{password}").expect("written");
    drop(input);
    assert!(child.wait().expect("ended").success());
}

fn lets_in(server: &Running, name: &str, password: &str) -> bool {
    let replies = server.dialogue(&[&format!("USER {name}"), &format!("PASS {password}")]);
    match replies[2].get(..3) {
        Some("230") => true,
        Some("530") => false,
        _ => panic!("{replies:?}"),
    }
}

#[test]
fn after_a_reload_an_old_password_is_refused_though_only_root_may_read_the_file() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let users = site.private("users");
    set_password(&users, "ann", "first");
    let mode = fs::metadata(&users).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut server = site.serve(&["--passwords", text(&users)]);
    assert!(lets_in(&server, "ann", "first"));
    set_password(&users, "ann", "second");
    server.signal(Signal::HUP);
    server.log_until("reloaded");
    assert!(!lets_in(&server, "ann", "first"), "it was changed");
    assert!(lets_in(&server, "ann", "second"));
}

#[test]
fn a_reload_that_cannot_read_the_passwords_says_that_the_old_ones_hold() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let users = site.private("users");
    set_password(&users, "ann", "first");
    let mut server = site.serve(&["--passwords", text(&users)]);
    set_password(&users, "ann", "second");
    // Another account could exchange the file now.
    let nobody = nix::unistd::User::from_name("nobody")
        .expect("asked")
        .expect("there is a nobody");
    chown(site.private.path(), Some(nobody.uid.as_raw()), None).expect("root may");
    chown(&users, Some(0), Some(0)).expect("root may");
    server.signal(Signal::HUP);
    let log = server.log_until("let only root write");
    let line = log.lines().last().expect("a line");
    for words in ["ERROR", "users", "passwords", "from before", text(&users)] {
        assert!(line.contains(words), "{words} in {line}");
    }
    assert!(lets_in(&server, "ann", "first"));
}

#[test]
fn a_configuration_file_that_only_root_may_read_is_read_again() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let (file, users) = (site.private("gridhaul.toml"), site.private("users"));
    set_password(&users, "ann", "first");
    let write = |anonymous: bool| {
        let mut file = File::create(&file).expect("made");
        file.set_permissions(Permissions::from_mode(0o600))
            .expect("set");
        let users = text(&users);
        writeln!(file, "anonymous = {anonymous}\npasswords = {users:?}").expect("written");
    };
    write(true);
    let mut server = site.serve(&["--config", text(&file)]);
    assert!(lets_in(&server, "anonymous", "x"));
    write(false);
    server.signal(Signal::HUP);
    server.log_until("reloaded");
    assert!(!lets_in(&server, "anonymous", "x"));
    assert!(lets_in(&server, "ann", "first"));
}

#[test]
fn a_trust_directory_that_cannot_be_read_again_is_told_at_the_start() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let trust = site.private("trust");
    fs::create_dir(&trust).expect("made");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/security/samples");
    for name in ["ca.pem", "ca.signing_policy", "host.pem", "host.key"] {
        let to = match name.starts_with("ca") {
            true => trust.join(name),
            false => site.private(name),
        };
        fs::copy(samples.join(name), to).expect("copied");
    }
    let (cert, key) = (site.private("host.pem"), site.private("host.key"));
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("set");
    let map = site.private("map");
    fs::write(&map, "").expect("written");
    let mut server = site.serve(&[
        "--gsi",
        "--trust",
        text(&trust),
        "--gridmap",
        text(&map),
        "--cert",
        text(&cert),
        "--key",
        text(&key),
    ]);
    let log = server.log_until("cannot be read again by the account");
    assert!(log.contains("ERROR") && log.contains(text(&trust)), "{log}");
    assert!(!log.contains(text(&map)), "the monitor opens it: {log}");
}

#[test]
fn a_check_names_a_password_file_that_cannot_be_read_again() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let users = site.private("users");
    set_password(&users, "ann", "first");
    let check = || {
        let output = program()
            .args(["check", "--root"])
            .arg(site.served.path())
            .arg("--passwords")
            .arg(&users)
            .output()
            .expect("started");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let complains = |report: &str| {
        let mut lines = report.lines().filter(|line| line.contains("passwords:"));
        lines.any(|line| line.starts_with("error") && line.contains("cannot be read again"))
    };
    let report = check();
    assert!(!complains(&report), "{report}");
    let all = Permissions::from_mode(0o1777);
    fs::set_permissions(site.private.path(), all).expect("set");
    let report = check();
    assert!(!complains(&report), "what is root's stays root's: {report}");
    let all = Permissions::from_mode(0o777);
    fs::set_permissions(site.private.path(), all).expect("set");
    let report = check();
    assert!(complains(&report), "{report}");
}

#[test]
fn a_reload_refuses_what_would_not_take_effect() {
    let site = Site::new();
    let file = site.private("gridhaul.toml");
    // The account that serves must be able to read it where there is no monitor.
    fs::set_permissions(site.private.path(), Permissions::from_mode(0o755)).expect("ours");
    let write = |more: &str| {
        fs::write(
            &file,
            format!("anonymous = true\nanonymous-names = 'guest'\n{more}\n"),
        )
        .expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("ours");
    };
    write("");
    let mut server = site.serve(&["--config", text(&file)]);
    assert!(lets_in(&server, "guest", "x"));
    for (mistake, words) in [
        (
            "log-level = 'verbose'",
            "line 3: log-level: 'verbose' is not a level",
        ),
        (
            "allowed-drivers = ['tpc']",
            "line 3: allowed-drivers: this program has no driver 'tpc'",
        ),
        (
            "client-options = ['tcp:buffer=<64M']",
            "line 3: client-options",
        ),
        (
            "data-address = '198.51.100.1'",
            "line 3: data-address 198.51.100.1 cannot be used",
        ),
        ("anonymus = true", "line 3: anonymus: there is no such key"),
    ] {
        // Would let other names in.
        let names = format!("{mistake}\n");
        fs::write(
            &file,
            format!("anonymous = true\nanonymous-names = 'other'\n{names}"),
        )
        .expect("written");
        server.signal(Signal::HUP);
        let log = server.log_until("everything stays as it was");
        let line = log.lines().last().expect("a line");
        assert!(
            line.contains("ERROR") && line.contains(words),
            "{words}: {line}"
        );
        assert!(lets_in(&server, "guest", "x"), "{mistake}");
    }
    write("client-options = ['auto:rate']\nallowed-drivers = 'tcp'");
    server.signal(Signal::HUP);
    let log = server.log_until("reloaded");
    assert!(
        log.contains("WARN") && log.contains("'auto:rate' is without effect"),
        "{log}"
    );
}

#[test]
fn a_deleted_user_is_refused_after_a_reload_though_only_root_may_read_the_files() {
    if !has_root() {
        return;
    }
    let site = Site::new();
    let (file, users) = (site.private("gridhaul.toml"), site.private("users"));
    set_password(&users, "ann", "first");
    set_password(&users, "bob", "second");
    fs::write(&file, format!("passwords = {:?}\n", text(&users))).expect("written");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
    let mut server = site.serve(&["--config", text(&file)]);
    assert!(lets_in(&server, "bob", "second"));
    let deleted = program()
        .arg("passwd")
        .arg(&users)
        .args(["--delete", "bob"])
        .output();
    let said = String::from_utf8(deleted.expect("started").stdout).expect("UTF-8");
    assert!(said.starts_with("deleted bob from "), "{said}");
    set_password(&users, "ann", "third");
    server.signal(Signal::HUP);
    server.log_until("reloaded");
    assert!(!lets_in(&server, "bob", "second"));
    assert!(!lets_in(&server, "ann", "first"));
    assert!(lets_in(&server, "ann", "third"));
}

#[test]
fn a_server_that_listens_at_localhost_survives_a_reload_with_another_port() {
    let site = Site::new();
    let file = site.private("gridhaul.toml");
    fs::set_permissions(site.private.path(), Permissions::from_mode(0o755)).expect("ours");
    let root = text(site.served.path());
    let write = |listen: &str| {
        let text = format!("root = {root:?}\nanonymous = true\nlisten = {listen}\n");
        fs::write(&file, text).expect("written");
    };
    write("'127.0.0.1:0'");
    let mut server = Running::of(program().arg("serve").arg("--config").arg(&file));
    // Processes that may not make sockets read it too.
    write("0");
    server.signal(Signal::HUP);
    let log = server.log_until("a change of this setting needs a restart");
    assert!(log.contains("listen"), "{log}");
    assert!(lets_in(&server, "anonymous", "x"));
    write("'localhost:0'");
    server.signal(Signal::HUP);
    server.log_until("a change of this setting needs a restart");
    assert!(lets_in(&server, "anonymous", "x"));
    let (status, log) = server.stop();
    assert_eq!(status, 0, "{log}");
    let server = Running::of(program().arg("serve").arg("--config").arg(&file));
    assert!(server.address.ip().is_loopback());
    assert!(lets_in(&server, "anonymous", "x"));
}

#[test]
fn a_changed_file_of_globus_gridftp_server_is_not_passed_over() {
    if !has_root() {
        return;
    }
    let site = public_directory();
    let (file, more) = (site.path().join("gridftp.conf"), site.path().join("more"));
    fs::write(&file, "banner \"first\"\n").expect("written");
    fs::create_dir(&more).expect("made");
    let mut command = program();
    command.args(["gct", "-p", "0", "-control-interface", "127.0.0.1"]);
    command.args(["-aa", "-anonymous-user", "nobody", "-c", text(&file)]);
    command.args(["-C", text(&more)]);
    let mut server = Running::of(&mut command);
    server.signal(Signal::HUP);
    assert_eq!(server.dialogue(&[])[0], "220 first");
    fs::write(more.join("other"), "banner \"second\"\n").expect("written");
    server.signal(Signal::HUP);
    let log = server.log_until("restart the server");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("ERROR") && log.contains(text(&more)), "{log}");
    assert_eq!(server.dialogue(&[])[0], "220 first");
}
