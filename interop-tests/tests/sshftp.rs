//! `sshftp://`: globus-url-copy starts the server through ssh and a real sshd on the loopback
//! interface. The same cases run against the real server.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use gridhaul_interop::{Client, Finished, Kind, content, gridhaul_program};
use tempfile::TempDir;

/// sshd, which must be started by its absolute path.
const SSHD: &str = "/usr/sbin/sshd";

/// An sshd for each connection, keys for one user, and a directory for files.
struct Host {
    directory: TempDir,
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    sessions: Arc<Mutex<Vec<Child>>>,
    acceptor: Option<JoinHandle<()>>,
}

impl Host {
    /// With `kind` as the server that `sshftp://` clients start.
    fn new(kind: Kind) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gridhaul-sshftp-")
            .tempdir()
            .unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for name in ["host-key", "user-key"] {
            let made = Client::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)])
                .run()
                .unwrap();
            assert!(made.status.success(), "{made}");
        }
        fs::copy(path("user-key.pub"), path("authorized-keys")).unwrap();
        let sshd = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\n",
            path("host-key"),
            path("authorized-keys"),
        );
        fs::write(path("sshd-config"), sshd).unwrap();
        let ssh = format!(
            "Host *\nIdentityFile {}\nIdentitiesOnly yes\nBatchMode yes\nLogLevel ERROR\n\
             StrictHostKeyChecking no\nUserKnownHostsFile {}\n",
            path("user-key"),
            path("known-hosts"),
        );
        fs::write(path("ssh-config"), ssh).unwrap();
        script(Path::new(&path("sshftp")), &server_command(kind));
        prepare_sshd();

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let ending = Arc::new(AtomicBool::new(false));
        let sessions = Arc::default();
        let acceptor = thread::spawn({
            let configuration = path("sshd-config");
            let (ending, sessions) = (Arc::clone(&ending), Arc::clone(&sessions));
            move || accept(&listener, &configuration, &ending, &sessions)
        });
        Self {
            directory,
            address,
            ending,
            sessions,
            acceptor: Some(acceptor),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The client's script passes the user name to ssh unquoted, so that options may precede
    /// it: without `-F` ssh would read the configuration of the account that runs the tests.
    fn url(&self, name: &str) -> String {
        let configuration = self.path("ssh-config").display().to_string();
        let configuration = configuration.replace('/', "%2F");
        let (user, address) = (whoami(), self.address);
        let path = self.path(name).display().to_string();
        format!("sshftp://-F%20{configuration}%20{user}@{address}{path}")
    }

    fn local(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn copy(&self, options: &[&str], source: &str, destination: &str) -> Finished {
        Client::new("globus-url-copy")
            .args(options.iter().copied().chain([source, destination]))
            .env("GLOBUS_REMOTE_SSHFTP", self.path("sshftp"))
            .run()
            .unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; a failure means that it has ended.
        let _ = TcpStream::connect(self.address);
        let _ = self.acceptor.take().map(JoinHandle::join);
        for mut session in self.sessions.lock().unwrap().drain(..) {
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
        let connection = connection.unwrap();
        if ending.load(Ordering::SeqCst) {
            return;
        }
        let session = Command::new(SSHD)
            .args(["-i", "-f", configuration])
            .stdin(OwnedFd::from(connection.try_clone().unwrap()))
            .stdout(OwnedFd::from(connection))
            .stderr(Stdio::null())
            .spawn()
            .expect("sshd is in Debian's package openssh-server");
        sessions.lock().unwrap().push(session);
    }
}

/// Makes the directory that Debian's service makes before it starts sshd as root.
fn prepare_sshd() {
    let directory = Path::new("/run/sshd");
    if rustix::process::geteuid().is_root() && !directory.exists() {
        // Another test may be doing the same.
        fs::create_dir_all(directory).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
}

fn server_command(kind: Kind) -> String {
    match kind {
        Kind::Gridhaul => {
            let program = gridhaul_program().unwrap();
            let program = fs::canonicalize(program).unwrap();
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
    }
}

/// The account that runs the tests.
fn whoami() -> String {
    let finished = Client::new("id").arg("-un").run().unwrap();
    assert!(finished.status.success(), "{finished}");
    finished.output().trim().to_owned()
}

fn script(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Larger than one block, and not a multiple of one.
const BYTES: u64 = 3_000_001;

fn files_go_both_ways(kind: Kind) {
    let host = Host::new(kind);
    let source = host.path("source");
    content::write(&source, BYTES).unwrap();
    for (name, options) in [("plain", &[][..]), ("parallel", &["-p", "4"])] {
        let finished = host.copy(options, &host.local("source"), &host.url(name));
        assert!(finished.status.success(), "{finished}");
        content::same(&source, &host.path(name)).unwrap();
        let fetched = format!("{name}.fetched");
        let finished = host.copy(options, &host.url(name), &host.local(&fetched));
        assert!(finished.status.success(), "{finished}");
        content::same(&source, &host.path(&fetched)).unwrap();
    }
}

fn copies_go_from_one_session_to_another(kind: Kind) {
    let host = Host::new(kind);
    content::write(&host.path("source"), BYTES).unwrap();
    let finished = host.copy(&["-p", "2"], &host.url("source"), &host.url("copy"));
    assert!(finished.status.success(), "{finished}");
    content::same(&host.path("source"), &host.path("copy")).unwrap();
}

fn missing_files_are_named(kind: Kind) {
    let host = Host::new(kind);
    let finished = host.copy(&[], &host.url("missing"), &host.local("copy"));
    assert!(!finished.status.success(), "{finished}");
    let output = finished.output();
    assert!(output.contains("No such file or directory"), "{finished}");
}

macro_rules! for_both {
    ($($case:ident: $ours:ident, $theirs:ident;)*) => {$(
        #[test]
        fn $ours() {
            $case(Kind::Gridhaul);
        }

        #[test]
        fn $theirs() {
            $case(Kind::Globus);
        }
    )*};
}

for_both! {
    files_go_both_ways: ours_stores_and_fetches, theirs_stores_and_fetches;
    copies_go_from_one_session_to_another: ours_copies_to_another, theirs_copies_to_another;
    missing_files_are_named: ours_names_missing_files, theirs_names_missing_files;
}
