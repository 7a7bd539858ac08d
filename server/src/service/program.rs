//! The program that the launcher starts: the one at the path and with the arguments of the start. Nothing else is ever started,
//! also on an order of a serving process that an attacker controls.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::time::Duration;

use gridhaul_accounts::process::execute;
use rustix::process::{geteuid, getppid};

use crate::called_as::is_globus;

use super::environment::{
    Environment, LISTEN_FDNAMES, LISTEN_FDS, LISTEN_PID, NOTIFY_SOCKET, PROTOCOL, UPGRADE,
    WATCHDOG_PID, WATCHDOG_USEC,
};

/// The program, its arguments, and what the service manager told it.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    /// As in the command line; it is not always the path.
    name: OsString,
    arguments: Vec<OsString>,
    notify_socket: Option<OsString>,
    watchdog: Option<Duration>,
}

/// A socket with its name.
pub(super) type Named<'a> = (&'a str, BorrowedFd<'a>);

/// What a program is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To examine the configuration.
    Check,
    /// To serve.
    Serve,
}

impl Program {
    /// The program of this process.
    pub(crate) fn of_this_process(environment: &Environment) -> io::Result<Self> {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        Ok(Self {
            path: path_of(Path::new(&name), &env::current_exe()?)?,
            name,
            arguments: arguments.collect(),
            notify_socket: environment.notify_socket.clone(),
            watchdog: environment.watchdog,
        })
    }

    /// Checks that it may be started. Must be called in the launcher.
    ///
    /// # Errors
    ///
    /// The reason.
    pub(super) fn examine(&self) -> Result<(), String> {
        if getppid().is_some_and(|server| server.as_raw_nonzero().get() == 1) {
            return Err(
                "the server is the first process of a container, which ends with it: restart the container".to_owned(),
            );
        }
        let is_of_globus =
            is_globus(&self.name) || self.arguments.first().is_some_and(|first| first == "gct");
        if is_of_globus {
            return Err(
                "the server has the command line of globus-gridftp-server, which no version takes over: restart it, or \
                 use a configuration that `gridhaul-server import` has written"
                    .to_owned(),
            );
        }
        let shown = self.path.display();
        let failed = |error: io::Error| format!("{shown}: {error}");
        // Both ways to the file: links in the first one can be replaced as well.
        let resolved = self.path.canonicalize().map_err(failed)?;
        let parts = self.path.ancestors().chain(resolved.ancestors());
        for part in parts {
            let found = fs::metadata(part).map_err(failed)?;
            if is_exposed(&found) {
                return Err(format!(
                    "{shown} is not started, because accounts other than root, or than that of the server, can replace {}: \
                     let only root write to it",
                    part.display()
                ));
            }
        }
        Ok(())
    }

    /// The command line, without sockets.
    pub(super) fn command(&self, purpose: Purpose) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg0(&self.name)
            .args(self.arguments(purpose))
            .stdin(Stdio::null());
        if purpose == Purpose::Serve {
            command.env(UPGRADE, PROTOCOL);
            if let Some(socket) = &self.notify_socket {
                command.env(NOTIFY_SOCKET, socket);
            }
            if let Some(watchdog) = self.watchdog {
                command.env(WATCHDOG_USEC, watchdog.as_micros().to_string());
            }
        }
        command
    }

    fn arguments(&self, purpose: Purpose) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        if purpose == Purpose::Check {
            // `serve` may be left out.
            if arguments.first().is_some_and(|first| first == "serve") {
                arguments.remove(0);
            }
            arguments.insert(0, "check".into());
        }
        arguments
    }
}

/// The path that leads to the next version of a program. A path in the command line may be a link that is going to lead
/// elsewhere, such as `/opt/gridhaul/current`, so it is preferred to the one that the kernel tells.
fn path_of(name: &Path, running: &Path) -> io::Result<PathBuf> {
    let is_path = name.components().count() > 1;
    let named = std::path::absolute(name)?;
    let file = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let is_same = is_path && file(&named).is_some() && file(&named) == file(running);
    Ok(if is_same { named } else { running.to_owned() })
}

/// Whether an account other than root, and that of this process, can replace a file or what is in a directory.
fn is_exposed(found: &Metadata) -> bool {
    const GROUP: u32 = 0o020;
    const OTHERS: u32 = 0o002;
    const STICKY: u32 = 0o1000;

    let own = geteuid();
    let is_foreign = found.uid() != 0 && found.uid() != own.as_raw();
    // A user without root often has a group without other members.
    let forbidden = if own.is_root() {
        GROUP | OTHERS
    } else {
        OTHERS
    };
    let is_shared = found.is_dir() && found.mode() & STICKY != 0;
    is_foreign || found.mode() & forbidden != 0 && !is_shared
}

/// Becomes the program, with these sockets. Must be called in a process that was forked for this, and that does nothing more if
/// this returns.
pub(super) fn become_program(mut command: Command, sockets: &[Named<'_>]) {
    let own = process::id().to_string();
    let names: Vec<&str> = sockets.iter().map(|(name, _)| *name).collect();
    command.env(WATCHDOG_PID, &own);
    if !sockets.is_empty() {
        command
            .env(LISTEN_PID, own)
            .env(LISTEN_FDS, sockets.len().to_string())
            .env(LISTEN_FDNAMES, names.join(":"));
    }
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, socket)| *socket).collect();
    // SAFETY: this process was forked for this, and does nothing more after an error.
    let error = unsafe { execute(&mut command, &sockets) };
    let program = Path::new(command.get_program()).display();
    gridhaul_accounts::process::tell(format_args!("cannot execute {program}: {error}"));
    // Its descriptors may have been replaced.
    std::mem::forget(command);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn program(path: PathBuf, arguments: &[&str]) -> Program {
        Program {
            name: path.clone().into(),
            path,
            arguments: arguments.iter().map(OsString::from).collect(),
            notify_socket: None,
            watchdog: None,
        }
    }

    #[test]
    fn the_check_has_the_arguments_of_the_server() {
        let flags = ["--config", "/etc/gridhaul/gridhaul.toml"];
        let expected = [&["check"], &flags[..]].concat();
        for line in [&flags[..], &[&["serve"], &flags[..]].concat()] {
            let program = program("/usr/sbin/gridhaul-server".into(), line);
            assert_eq!(program.arguments(Purpose::Check), expected);
            assert_eq!(program.arguments(Purpose::Serve), line);
        }
    }

    #[test]
    fn a_link_on_the_command_line_leads_to_the_next_version() {
        let directory = tempfile::tempdir().expect("a directory");
        let [first, other, link] = ["1", "2", "current"].map(|name| directory.path().join(name));
        fs::write(&first, "").expect("written");
        fs::write(&other, "").expect("written");
        symlink(&first, &link).expect("linked");
        assert_eq!(path_of(&link, &first).expect("there"), link);
        assert_eq!(path_of(&other, &first).expect("there"), first);
        assert_eq!(path_of(Path::new("1"), &first).expect("there"), first);
    }

    #[test]
    fn a_program_that_others_can_replace_is_not_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("program");
        fs::write(&path, "").expect("written");
        let examined = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            program(path.clone(), &[]).examine()
        };
        assert_eq!(examined(0o755), Ok(()));
        let reason = examined(0o757).expect_err("exposed");
        assert!(reason.contains("can replace"), "{reason}");
        assert_eq!(examined(0o755), Ok(()));
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(directory.path(), open).expect("ours");
        assert!(examined(0o755).is_err(), "its directory");
    }
}
