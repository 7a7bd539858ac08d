//! Directories and files that are not about security.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gridhaul_storage::CHECKSUM_ATTRIBUTE;
use rustix::io::Errno;

use super::report::Report;
use crate::privileges;
use crate::telemetry::Logging;
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated) {
    let config = &validated.config;
    if !validated.is_wrong("root") {
        tell_root(report, &config.root);
    }
    if let Some(path) = &config.passwords
        && !validated.is_wrong("passwords")
    {
        report.ok("passwords", format!("{} can be read", path.display()));
        check_exposed(report, "passwords", path, "give themselves access");
        check_read_again(report, "passwords", path, &config.user);
    }
    if config.checksum_key.is_some() && !validated.is_wrong("checksum-key") {
        check_attributes(report, &config.root);
    }
    let logs = [
        ("transfer-log", &config.transfer_log),
        ("log-file", &config.log.file),
        ("audit-log", &config.log.audit),
    ];
    for (about, path) in logs {
        if let Some(path) = path
            && !validated.is_wrong(about)
        {
            report.ok(about, format!("{} can be written", path.display()));
            check_rotation(report, about, path, &config.user);
        }
    }
    if let Err(error) = Logging::check_journal(&config.log) {
        report.error("log-format", error);
    }
    if privileges::is_root() && !validated.is_wrong("user") {
        report.ok("user", format!("the server will run as {}", config.user));
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

/// Checks that no other accounts can change a file that decides about access: the file itself, and the directory in which they
/// could replace it. The groups of root and of this account are trusted: many accounts have a group of their own.
pub(super) fn check_exposed(report: &mut Report, about: &'static str, path: &Path, harm: &str) {
    const STICKY: u32 = 0o1000;

    let shown = path.display();
    let Ok(real) = fs::canonicalize(path) else {
        return;
    };
    let own_group = rustix::process::getegid().as_raw();
    let directory = real.parent().map(|parent| (parent, "its directory "));
    for (place, what) in [(real.as_path(), "")].into_iter().chain(directory) {
        let Ok(metadata) = fs::metadata(place) else {
            continue;
        };
        let (mode, group) = (metadata.mode(), metadata.gid());
        // In such a directory only the owner of a file replaces it.
        if metadata.is_dir() && mode & STICKY != 0 {
            continue;
        }
        let place = place.display();
        let of = match what {
            "" => format!("{shown} "),
            _ => format!("{shown}: {what}{place} "),
        };
        let text = if mode & 0o002 != 0 {
            format!("{of}can be written by all users, who could {harm}: chmod o-w {place}")
        } else if mode & 0o020 != 0 && group != 0 && group != own_group {
            format!(
                "{of}can be written by the group {group}, whose members could {harm}: chmod g-w {place}"
            )
        } else {
            continue;
        };
        report.error(about, text);
    }
}

fn tell_root(report: &mut Report, root: &Path) {
    const ABOUT: &str = "root";
    let shown = root.display();
    let of_account = |part: &OsStr| part == "$HOME" || part == "$USER";
    if root.iter().any(of_account) {
        report.ok(
            ABOUT,
            format!("{shown} is another directory for each account"),
        );
    } else {
        report.ok(ABOUT, format!("{shown} can be opened"));
    }
}

/// Checksums are stored with files only where the file system has extended attributes.
fn check_attributes(report: &mut Report, root: &Path) {
    const ABOUT: &str = "checksum-key";
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

/// Checks whether a server that was started as root can open a log again after a rotation has renamed it: with the rights of
/// its account, or through the monitor.
fn check_rotation(report: &mut Report, about: &'static str, path: &Path, user: &str) {
    if !rustix::process::geteuid().is_root() || privileges::may_create(user, path) {
        return;
    }
    if let Err(error) = gridhaul_accounts::may_be_appended(path, privileges::uid_of(user)) {
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
