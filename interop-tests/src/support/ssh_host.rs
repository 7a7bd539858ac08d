//! An sshd on the loopback interface, which starts a server for `sshftp://` clients.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use super::client::Client;
use super::program::{Kind, gridhaul_program, write_program};

/// sshd, which must be started by its absolute path.
const SSHD: &str = "/usr/sbin/sshd";

/// An sshd for each connection, keys for one user, and a directory for files.
#[derive(Debug)]
pub struct SshHost {
    directory: TempDir,
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    sessions: Arc<Mutex<Vec<Child>>>,
    acceptor: Option<JoinHandle<()>>,
}

impl SshHost {
    /// With `kind` as the server that `sshftp://` clients start.
    ///
    /// # Errors
    ///
    /// When a program is missing, or a file cannot be written.
    pub fn new(kind: Kind) -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("gridhaul-sshftp-")
            .tempdir()?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        for name in ["host-key", "user-key"] {
            let made = Client::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)])
                .run()
                .map_err(io::Error::other)?;
            if !made.status.success() {
                return Err(io::Error::other(made.to_string()));
            }
        }
        fs::copy(path("user-key.pub"), path("authorized-keys"))?;
        let sshd = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\n",
            path("host-key"),
            path("authorized-keys"),
        );
        fs::write(path("sshd-config"), sshd)?;
        let ssh = format!(
            "Host *\nIdentityFile {}\nIdentitiesOnly yes\nBatchMode yes\nLogLevel ERROR\n\
             StrictHostKeyChecking no\nUserKnownHostsFile {}\n",
            path("user-key"),
            path("known-hosts"),
        );
        fs::write(path("ssh-config"), ssh)?;
        write_program(Path::new(&path("sshftp")), &server_command(kind)?)?;
        let ssh = format!("#!/bin/sh\nexec ssh -F '{}' \"$@\"\n", path("ssh-config"));
        write_program(Path::new(&path("ssh")), &ssh)?;
        prepare_sshd()?;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ending = Arc::new(AtomicBool::new(false));
        let sessions = Arc::default();
        let acceptor = thread::spawn({
            let configuration = path("sshd-config");
            let (ending, sessions) = (Arc::clone(&ending), Arc::clone(&sessions));
            move || accept(&listener, &configuration, &ending, &sessions)
        });
        Ok(Self {
            directory,
            address,
            ending,
            sessions,
            acceptor: Some(acceptor),
        })
    }

    /// The address of sshd.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A file: `sshftp` starts the server, `ssh` is ssh with a configuration for this host, which is `ssh-config`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; a failure means that it has ended.
        let _ = TcpStream::connect(self.address);
        let _ = self.acceptor.take().map(JoinHandle::join);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        for mut session in sessions.drain(..) {
            // sshd has ended with its client, unless the test has failed.
            let _ = session.kill();
            let _ = session.wait();
        }
    }
}

/// Starts an sshd for each connection in inetd mode, which needs no port.
fn accept(
    listener: &TcpListener,
    configuration: &str,
    ending: &AtomicBool,
    sessions: &Mutex<Vec<Child>>,
) {
    for connection in listener.incoming() {
        if ending.load(Ordering::SeqCst) {
            return;
        }
        match connection.and_then(|connection| serve(connection, configuration)) {
            Ok(session) => {
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.push(session);
            }
            // The client sees the end of its connection.
            Err(error) => eprintln!("{SSHD}, of Debian's package openssh-server: {error}"),
        }
    }
}

fn serve(connection: TcpStream, configuration: &str) -> io::Result<Child> {
    Command::new(SSHD)
        .args(["-i", "-f", configuration])
        .stdin(OwnedFd::from(connection.try_clone()?))
        .stdout(OwnedFd::from(connection))
        .stderr(Stdio::null())
        .spawn()
}

/// Makes the directory that Debian's service makes before it starts sshd as root.
fn prepare_sshd() -> io::Result<()> {
    let directory = Path::new("/run/sshd");
    if rustix::process::geteuid().is_root() && !directory.exists() {
        // Another test may be doing the same.
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn server_command(kind: Kind) -> io::Result<String> {
    Ok(match kind {
        Kind::Gridhaul => {
            let program = gridhaul_program().map_err(io::Error::other)?;
            let program = fs::canonicalize(program)?;
            format!("#!/bin/sh\nexec '{}' ssh\n", program.display())
        }
        Kind::Globus => {
            // With -ssh it treats every login as anonymous, which needs an account when root runs it.
            let account = if rustix::process::geteuid().is_root() {
                "-anonymous-user root -allow-root"
            } else {
                ""
            };
            format!("#!/bin/sh\nexec /usr/sbin/globus-gridftp-server -ssh -c /dev/null {account}\n")
        }
    })
}
