//! Directories and files that are not about security.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use gridhaul_storage::{CHECKSUM_ATTRIBUTE, PosixOptions, PosixStorage};
use rustix::io::Errno;

use super::report::Report;
use crate::checksum_key;
use crate::config::Config;
use crate::passwords::Passwords;
use crate::privileges;
use crate::telemetry::Logging;

pub(super) fn check(report: &mut Report, config: &Config) {
    check_root(report, config);
    if let Some(path) = &config.passwords {
        match Passwords::read(path) {
            Ok(_) => {
                report.ok("passwords", format!("{} can be read", path.display()));
                check_read_again(report, "passwords", path, &config.user);
            }
            Err(error) => report.error("passwords", error),
        }
    }
    if let Some(path) = &config.checksum_key {
        check_checksum_key(report, path, &config.root);
    }
    let logs = [
        ("transfer-log", &config.transfer_log),
        ("log-file", &config.log.file),
        ("audit-log", &config.log.audit),
    ];
    for (about, path) in logs {
        if let Some(path) = path {
            check_log(report, about, path, &config.user);
        }
    }
    if let Err(error) = Logging::check_journal(&config.log) {
        report.error("log-format", error);
    }
    if rustix::process::geteuid().is_root() {
        match privileges::check_user(&config.user) {
            Ok(()) => report.ok("user", format!("the server will run as {}", config.user)),
            Err(error) => report.error("user", error),
        }
    }
}

/// Checks whether a server that was started as root can read an administrator's file again after a change: with the rights
/// of its account, or through the monitor.
pub(super) fn check_read_again(report: &mut Report, about: &'static str, path: &Path, user: &str) {
    if !rustix::process::geteuid().is_root() || privileges::may_reach(user, path) {
        return;
    }
    if let Err(error) = gridhaul_accounts::may_be_opened(path) {
        let path = path.display();
        report.error(
            about,
            format!(
                "{path} cannot be read again by {user}, as which the server runs, and root does not open it for that \
                 account: {error}. Until then what was read at the start holds, so that a change needs a restart"
            ),
        );
    }
}

fn check_root(report: &mut Report, config: &Config) {
    const ABOUT: &str = "root";
    let root = &config.root;
    let shown = root.display();
    let of_account = |part: &OsStr| part == "$HOME" || part == "$USER";
    if root.iter().any(of_account) {
        return report.ok(
            ABOUT,
            format!("{shown} is another directory for each account"),
        );
    }
    let options = PosixOptions {
        read_only: true,
        ..PosixOptions::default()
    };
    match PosixStorage::open(root, options) {
        Ok(_) => report.ok(ABOUT, format!("{shown} can be opened")),
        Err(error) => report.error(ABOUT, format!("cannot serve {shown}: {error}")),
    }
}

/// Checksums are stored with files only with a key, and where the file system has extended attributes.
fn check_checksum_key(report: &mut Report, key: &Path, root: &Path) {
    const ABOUT: &str = "checksum-key";
    if let Err(error) = checksum_key::read(key) {
        return report.error(ABOUT, error);
    }
    match rustix::fs::getxattr(root, CHECKSUM_ATTRIBUTE, &mut [0; 1]) {
        Err(Errno::OPNOTSUPP) => report.warning(
            ABOUT,
            format!(
                "the file system of {} has no extended attributes for users, so checksums are kept in memory only",
                root.display()
            ),
        ),
        _ => report.ok(
            ABOUT,
            format!("files carry their checksums in {CHECKSUM_ATTRIBUTE}"),
        ),
    }
}

/// Opens a log as the server would, but does not create it.
fn check_log(report: &mut Report, about: &'static str, path: &Path, user: &str) {
    let shown = path.display();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let opened = OpenOptions::new().append(true).open(path).map(drop);
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read_dir(parent).map(drop),
        opened => opened,
    };
    match opened {
        Ok(()) => report.ok(about, format!("{shown} can be written")),
        Err(error) => return report.error(about, format!("{shown}: {error}")),
    }
    check_rotation(report, about, path, user);
}

/// Checks whether a server that was started as root can open a log again after a rotation has renamed it: with the rights of
/// its account, or through the monitor.
fn check_rotation(report: &mut Report, about: &'static str, path: &Path, user: &str) {
    if !rustix::process::geteuid().is_root() || privileges::may_create(user, path) {
        return;
    }
    if let Err(error) = gridhaul_accounts::may_be_appended(path) {
        let path = path.display();
        report.error(
            about,
            format!(
                "{path} cannot be opened again after a rotation by {user}, as which the server runs, and root does not \
                 open it for that account: {error}. SIGHUP would leave the old file in use. Let {user} or only root \
                 write to its directory"
            ),
        );
    }
}
