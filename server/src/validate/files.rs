//! The files that settings name must be there, and usable by the account that serves.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use gridhaul_accounts::pam_service_is_described;
use gridhaul_security::files::open_file;
use gridhaul_storage::{PosixOptions, PosixStorage};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Validated, credential, identity, roots};
use crate::checksum_key;
use crate::config::{Callout, Config};
use crate::passwords::{Passwords, PasswordsError};
use crate::privileges;

pub(super) fn check(validated: &mut Validated) {
    let config = validated.config.clone();
    check_user(validated, &config);
    check_root(validated, &config);
    check_security(validated, &config);
    credential::check_host(validated, &config);
    identity::check(validated, &config);
    credential::check_administrators(validated, &config);
    check_pam_service(validated, &config);
    let passwords = check_passwords(validated, &config);
    roots::check(validated, &config, passwords.as_ref());
    if let Some(path) = &config.checksum_key
        && let Err(error) = checksum_key::read(path)
    {
        validated.error("checksum-key", format!("checksum-key: {error}"));
    }
    let logs = [
        ("transfer-log", &config.transfer_log),
        ("log-file", &config.log.file),
        ("audit-log", &config.log.audit),
    ];
    for (key, path) in logs {
        if let Some(path) = path
            && let Err(error) = may_append(path)
        {
            let text = format!(
                "{key}: {}: {error}; the directory must exist, and the file is created in it",
                path.display()
            );
            validated.error(key, text);
        }
    }
}

/// Without its file, PAM asks the service `other`, which refuses all users on most machines.
fn check_pam_service(validated: &mut Validated, config: &Config) {
    let service = config.accounts.monitor.pam_service.as_deref();
    if let Some(service) = service.filter(|service| !pam_service_is_described(service)) {
        let text = format!(
            "pam-service: there is no {service} in /etc/pam.d, so no user would be admitted; make /etc/pam.d/{service}, or \
             name another service"
        );
        validated.error("pam-service", text);
    }
}

/// Returns the users, if their file can be used.
fn check_passwords(validated: &mut Validated, config: &Config) -> Option<Passwords> {
    let path = config.passwords.as_ref()?;
    let passwords = match Passwords::read(path) {
        Ok(passwords) => passwords,
        Err(error) => {
            let remedy = match error {
                PasswordsError::Line { .. } => "correct the line, or delete it",
                _ => "`gridhaul-server passwd FILE NAME` makes the file",
            };
            let text = format!("passwords: {error}; {remedy}");
            validated.error("passwords", text);
            return None;
        }
    };
    let anonymous = config.anonymous.iter();
    for name in anonymous.flat_map(|anonymous| &anonymous.names) {
        if passwords.has(name) {
            let text = format!(
                "passwords: the user '{name}' has a password, so anonymous users cannot log in by that name: delete the \
                 user, or take the name out of anonymous-names"
            );
            validated.warning("passwords", text);
        }
    }
    if passwords.len() == 0 && config.anonymous.is_none() && config.security.gsi.is_none() {
        let path = path.display();
        let text = format!(
            "passwords: {path} has no users, and there is no other way to log in: `gridhaul-server passwd {path} NAME` adds one, \
             and a reload reads the file again"
        );
        validated.warning("passwords", text);
    }
    Some(passwords)
}

fn check_user(validated: &mut Validated, config: &Config) {
    let user = &config.user;
    if !privileges::is_root() {
        if validated.sources.is_given("user") {
            let text = format!(
                "user '{user}' is without effect: the server was not started as root, and runs as the account that \
                 starts it"
            );
            validated.warning("user", text);
        }
    } else if let Err(error) = privileges::check_user(user) {
        validated.error("user", format!("user: {error}"));
    }
}

fn check_root(validated: &mut Validated, config: &Config) {
    let root = &config.root;
    let of_account = |part: &OsStr| part == "$HOME" || part == "$USER";
    if root.iter().any(of_account) {
        return;
    }
    let shown = root.display();
    // Users without a local account have the rights of the account that serves.
    let is_own = config.anonymous.is_some()
        || config.passwords.is_some()
        || config.node.is_some() && !privileges::is_root();
    let options = PosixOptions {
        read_only: true,
        ..PosixOptions::default()
    };
    match PosixStorage::open(root, options) {
        Ok(_) if is_own && privileges::is_root() && !validated.is_wrong("user") => {
            if let Err(error) = privileges::check_entering(&config.user, root) {
                let user = &config.user;
                let text = format!(
                    "root: {shown} cannot be entered by {user}, as which the server runs ({error}): chmod o+rx {shown}, \
                     or name another account with --user"
                );
                validated.error("root", text);
            }
        }
        Ok(_) => {}
        // A network file system may refuse root and admit accounts.
        Err(error) if !is_own && error.errno == Errno::ACCESS => {}
        Err(error) => {
            let text = format!("root: cannot serve {shown}: {error}; name a directory that exists");
            validated.error("root", text);
        }
    }
}

/// Certificates, trust, maps and lists. `check` examines what is in them, and those who read them refuse what they cannot use.
fn check_security(validated: &mut Validated, config: &Config) {
    for (key, path) in files_of_security(config) {
        let opened = match key {
            "trust" | "vomsdir" | "gridmapdir" => fs::read_dir(path).map(drop),
            // A program that must be executable, and need not be readable.
            "authz-callout" => fs::metadata(path).map(drop),
            _ => open_file(path).map(drop),
        };
        let Err(error) = opened else {
            continue;
        };
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => format!("install it, or name another one with --{key}"),
            _ => format!(
                "the account that starts the server must be able to read it, or name another one with --{key}"
            ),
        };
        let by = match validated.sources.is_given(key) {
            true => "",
            false => ", named by the environment or a default place",
        };
        let text = format!("{key}: {}{by}: {error}; {remedy}", path.display());
        validated.error(key, text);
    }
}

/// The files that must be there when the server starts. The socket of a callout may come later, with its service.
fn files_of_security(config: &Config) -> Vec<(&'static str, &Path)> {
    let mut wanted: Vec<(&str, &Path)> = Vec::new();
    if let Some(host) = &config.security.host {
        wanted.push(("cert", &host.certificates));
        if host.key != host.certificates {
            wanted.push(("key", &host.key));
        }
        let passphrase = host.passphrase.as_deref();
        wanted.extend(passphrase.map(|path| ("key-passphrase", path)));
    }
    let node = config.node.as_ref();
    let identity = node.and_then(|node| node.identity.as_deref());
    wanted.extend(identity.map(|path| ("node-identity", path)));
    if let Some(gsi) = &config.security.gsi {
        wanted.push(("trust", &gsi.trust));
        wanted.extend(
            gsi.ban_lists
                .iter()
                .map(|path| ("ban-list", path.as_path())),
        );
        let pools = config.accounts.monitor.gridmapdir.as_deref();
        for (key, path) in [
            ("gridmap", gsi.gridmap.as_deref()),
            ("vomsdir", gsi.vomsdir.as_deref()),
            ("gridmapdir", pools),
        ] {
            wanted.extend(path.map(|path| (key, path)));
        }
        if let Some(Callout::Program(path)) = &config.authz_callout {
            wanted.push(("authz-callout", path));
        }
    }
    let admin = &config.admin;
    for (key, path) in [
        ("admin-token", &admin.token),
        ("admin-cert", &admin.certificate),
        ("admin-key", &admin.key),
        ("admin-clients", &admin.clients),
    ] {
        wanted.extend(path.as_deref().map(|path| (key, path)));
    }
    wanted
}

/// Opens a log as the server would, but does not create it.
fn may_append(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Another account may have put a FIFO there, on whose reader the server would wait.
    let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    match OpenOptions::new()
        .append(true)
        .custom_flags(flags)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read_dir(parent).map(drop),
        opened => opened.map(drop),
    }
}
