//! A root that is replaced while the server runs, where only root may follow its path.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::{Running, has_root, program};
use gridhaul_skip::skipped;

const LOGIN: [&str; 2] = ["USER ftp", "PASS x"];

/// A root in a directory that only root may enter.
struct Closed {
    directory: TempDir,
}

impl Closed {
    /// `None` where the server is not started as root.
    fn new() -> Option<Self> {
        if !has_root() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).expect("set");
        let closed = Self { directory };
        closed.make_root();
        Some(closed)
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn make_root(&self) {
        fs::create_dir(self.root()).expect("made");
        fs::set_permissions(self.root(), Permissions::from_mode(0o755)).expect("set");
    }
}

fn lets_in(server: &Running) -> bool {
    let replies = server.dialogue(&LOGIN);
    let answer = &replies[2];
    assert!(
        answer.starts_with("230") || answer.starts_with("530"),
        "{answer}"
    );
    answer.starts_with("230")
}

#[test]
fn a_root_that_was_renamed_where_only_root_sees_it_is_not_served() {
    let Some(closed) = Closed::new() else { return };
    let mut server = Running::start(&closed.root(), &["--anonymous"]);
    assert!(lets_in(&server));
    let away = closed.directory.path().join("old");
    fs::rename(closed.root(), &away).expect("renamed");
    closed.make_root();
    assert!(!lets_in(&server));
    let log = server.log_until("logins are refused");
    assert!(log.contains("ERROR"), "{log}");
    fs::remove_dir(closed.root()).expect("removed");
    fs::rename(&away, closed.root()).expect("renamed");
    assert!(lets_in(&server));
}

/// The server has a mount namespace of its own, so nothing is left on the machine.
#[test]
fn a_mount_over_the_root_where_only_root_sees_it_is_noticed() {
    let Some(closed) = Closed::new() else { return };
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        command
    };
    let possible = namespace()
        .args(["mount", "-t", "tmpfs", "none"])
        .arg(closed.root())
        .output();
    if !possible
        .as_ref()
        .is_ok_and(|output| output.status.success())
    {
        skipped(&format!(
            "nothing can be mounted in a namespace here: {possible:?}"
        ));
        return;
    }
    let mut server = Running::of(
        namespace()
            .arg(program().get_program())
            .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
            .arg(closed.root()),
    );
    assert!(lets_in(&server));
    in_namespace(&server, &["mount", "-t", "tmpfs", "none"], &closed.root());
    assert!(!lets_in(&server));
    let log = server.log_until("logins are refused");
    assert!(log.contains("ERROR"), "{log}");
    in_namespace(&server, &["umount"], &closed.root());
    assert!(lets_in(&server));
}

fn in_namespace(server: &Running, command: &[&str], path: &Path) {
    let output = Command::new("nsenter")
        .args(["--mount", "--target", &server.id().to_string()])
        .args(command)
        .arg(path)
        .output()
        .expect("started");
    assert!(output.status.success(), "{command:?}: {output:?}");
}
