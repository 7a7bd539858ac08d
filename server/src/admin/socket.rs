//! The Unix socket of the administration interface.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use gridhaul_accounts::{is_private, lock_directory};
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::{AdminSocket, Config};

/// The directory of the socket of a server that root starts.
pub(crate) const RUN: &str = "/run/gridhaul";

/// A socket that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdminSocketError {
    /// The system refuses it.
    #[error("admin-socket {}: {error}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// Its directory is missing or cannot be opened.
    #[error(
        "admin-socket {}: its directory cannot be opened: {error}; make the directory, or name a path in another one",
        path.display()
    )]
    Directory {
        /// The socket.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// Another server listens there.
    #[error("admin-socket {}: another server listens there; name another path", .0.display())]
    Taken(PathBuf),
    /// Something else is there.
    #[error("admin-socket {}: there is something that is no socket; remove it, or name another path", .0.display())]
    NoSocket(PathBuf),
    /// Other users could replace the socket.
    #[error(
        "admin-socket {}: other users may write to its directory, and could replace it; name a path in a directory that \
         only root or the account of the server may write",
        .0.display()
    )]
    OpenDirectory(PathBuf),
}

/// Where the socket of a server at this port is, unless the configuration tells. `None` if there is no place for it. A
/// server at a port that the kernel chooses has no such socket.
pub(crate) fn default_path(port: u16) -> Option<PathBuf> {
    if port == 0 {
        return None;
    }
    if geteuid().is_root() {
        return Some(Path::new(RUN).join("admin.sock"));
    }
    Some(run_directory_of_user()?.join(format!("{port}.sock")))
}

/// The directory of the sockets of servers that this user starts.
fn run_directory_of_user() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| directory.is_absolute());
    Some(runtime?.join("gridhaul"))
}

/// The directory of a socket, if it is one of those that contain only sockets of servers.
pub(crate) fn run_directory_of(socket: &Path) -> Option<&Path> {
    let directory = socket.parent()?;
    let is_own = directory == Path::new(RUN)
        || run_directory_of_user().is_some_and(|of_user| directory == of_user);
    is_own.then_some(directory)
}

/// Where the socket of a server with this configuration is, if it has one.
pub(crate) fn path_of(config: &Config) -> Option<PathBuf> {
    let port = config.listen.first().map_or(0, SocketAddr::port);
    match &config.admin.socket {
        AdminSocket::At(path) => Some(path.clone()),
        AdminSocket::Default => default_path(port),
        AdminSocket::None => None,
    }
}

/// Makes the directory of a default path.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    match DirBuilder::new().mode(0o750).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Checks whether a server could listen at a path, without changing anything.
///
/// # Errors
///
/// When another server listens there, or the path cannot be used safely.
pub(crate) fn examine(path: &Path) -> Result<(), AdminSocketError> {
    open_directory(path)?;
    find(path)?;
    let system = |error| AdminSocketError::System {
        path: path.to_owned(),
        error,
    };
    // The kernel limits the length of the path.
    SockAddr::unix(path).map(drop).map_err(system)
}

/// Listens at a path. A socket that no server listens at is replaced. Only the account of this process can connect.
///
/// # Errors
///
/// When another server listens there, or the path cannot be used safely.
pub(super) fn listen(path: &Path) -> Result<UnixListener, AdminSocketError> {
    let failed = |error: io::Error| AdminSocketError::System {
        path: path.to_owned(),
        error,
    };
    let directory = open_directory(path)?;
    // Of two servers that start at the same time, the second one sees the socket of the first. The lock ends with this call.
    lock_directory(&directory).map_err(failed)?;
    if find(path)? == Found::Stale {
        fs::remove_file(path).map_err(failed)?;
    }
    let open = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Before it listens nothing can connect.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        socket.listen(64)?;
        socket.set_nonblocking(true)?;
        Ok(UnixListener::from(socket))
    };
    open().map_err(failed)
}

/// What is at a path where a server may listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A socket that no server listens at.
    Stale,
}

fn find(path: &Path) -> Result<Found, AdminSocketError> {
    let failed = |error| AdminSocketError::System {
        path: path.to_owned(),
        error,
    };
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        found => found.map_err(failed)?,
    };
    if !found.file_type().is_socket() {
        return Err(AdminSocketError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(AdminSocketError::Taken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Found::Stale),
        Err(error) => Err(failed(error)),
    }
}

/// Opens the directory of a path, in which other users must not be able to replace the socket.
fn open_directory(path: &Path) -> Result<File, AdminSocketError> {
    let failed = |error| AdminSocketError::Directory {
        path: path.to_owned(),
        error,
    };
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(
        parent.unwrap_or_else(|| Path::new(".")),
        flags,
        Mode::empty(),
    );
    let directory = File::from(directory.map_err(|errno| failed(errno.into()))?);
    match is_private(&directory).map_err(failed)? {
        true => Ok(directory),
        false => Err(AdminSocketError::OpenDirectory(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("admin.sock");
        let first = listen(&path).expect("listens");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(listen(&path), Err(AdminSocketError::Taken(_))));
        assert!(matches!(examine(&path), Err(AdminSocketError::Taken(_))));
        drop(first);
        examine(&path).expect("a stale socket would be replaced");
        assert!(path.exists(), "nothing changes");
        listen(&path).expect("the first one has ended");
    }

    #[test]
    fn only_directories_of_servers_count_as_such() {
        let run = Path::new(RUN);
        assert_eq!(run_directory_of(&run.join("admin.sock")), Some(run));
        for elsewhere in [
            "/home/a/x.sock",
            "/run/x.sock",
            "/run/gridhaul/a/x.sock",
            "x.sock",
        ] {
            assert_eq!(run_directory_of(Path::new(elsewhere)), None);
        }
    }

    #[test]
    fn nothing_else_is_replaced_and_other_users_cannot_replace_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("admin.sock");
        fs::write(&path, "important").expect("written");
        assert!(matches!(listen(&path), Err(AdminSocketError::NoSocket(_))));
        assert_eq!(fs::read(&path).expect("still there"), b"important");
        let open = directory.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
        let refused = listen(&open.join("admin.sock"));
        assert!(matches!(refused, Err(AdminSocketError::OpenDirectory(_))));
        let missing = listen(&directory.path().join("missing/admin.sock"));
        assert!(matches!(missing, Err(AdminSocketError::Directory { .. })));
        let long = directory.path().join("x".repeat(200));
        assert!(matches!(
            examine(&long),
            Err(AdminSocketError::System { .. })
        ));
    }
}
