//! What a service manager passes to the server and hears from it. The test is the manager.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::program::{Running, clean, fails, program, public_directory};
use crate::security::Site;
use crate::upgrade::Successor;

/// Messages that come later never come.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A service manager that listens.
struct Manager {
    directory: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let directory = public_directory();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        // Processes of other accounts send to it.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&path, all).expect("set");
        socket.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        Self { directory, socket }
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = program();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
            .arg(root)
            .env("NOTIFY_SOCKET", self.directory.path().join("notify"));
        command
    }

    fn message(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("a message");
        String::from_utf8(message[..length].to_vec()).expect("UTF-8")
    }

    /// The next message with this word.
    fn message_with(&self, word: &str) -> String {
        loop {
            let message = self.message();
            if message.contains(word) {
                return message;
            }
        }
    }

    /// The next message that has more than a status.
    fn event(&self) -> String {
        loop {
            let message = self.message();
            if !message.starts_with("STATUS=") {
                return message;
            }
        }
    }

    /// Whether a message with this word comes within this time.
    fn hears(&self, word: &str, within: Duration) -> bool {
        self.socket.set_read_timeout(Some(within)).expect("set");
        let mut message = [0; 4096];
        let mut heard = false;
        while let (false, Ok(length)) = (heard, self.socket.recv(&mut message)) {
            heard = String::from_utf8_lossy(&message[..length]).contains(word);
        }
        self.socket.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        heard
    }

    /// Forgets what has come.
    fn forget(&self) {
        self.socket.set_nonblocking(true).expect("set");
        while self.socket.recv(&mut [0; 4096]).is_ok() {}
        self.socket.set_nonblocking(false).expect("set");
    }
}

#[test]
fn the_manager_hears_of_a_data_node() {
    let (site, manager) = (Site::new(), Manager::new());
    let mut command = program();
    command
        .args(["node", "--listen", "127.0.0.1:0", "--root"])
        .arg(site.path(""))
        .args(["--cert", &site.text("host.pem")])
        .args(["--key", &site.text("host.key")])
        .args(["--trust", &site.text("certificates")])
        .env("NOTIFY_SOCKET", manager.directory.path().join("notify"));
    let server = Running::of(&mut command);
    let ready = "READY=1\nSTATUS=connections of control servers: 0, sessions: 0\n";
    assert_eq!(manager.message(), ready);
    server.signal(Signal::HUP);
    manager.message_with("RELOADING=1");
    manager.message_with("READY=1");
    server.signal(Signal::TERM);
    manager.message_with("STOPPING=1");
    let (status, log) = server.ended();
    assert_eq!(status, 0, "{log}");
}

#[test]
fn the_manager_hears_of_start_reload_and_end() {
    let (root, manager) = (public_directory(), Manager::new());
    let server = Running::of(&mut manager.command(root.path()));
    assert_eq!(
        manager.message(),
        "READY=1\nSTATUS=serving: 0 sessions, 0 transfers\n"
    );
    let mut client = Client::log_in(&server);
    manager.message_with("STATUS=serving: 1 sessions, 0 transfers");
    server.signal(Signal::HUP);
    let begun = manager.message_with("RELOADING=1");
    assert!(begun.contains("MONOTONIC_USEC="), "{begun}");
    manager.message_with("READY=1");
    client.expect("QUIT", "221");
    server.signal(Signal::TERM);
    let end = manager.message_with("STOPPING=1");
    assert!(end.contains("EXTEND_TIMEOUT_USEC=75000000"), "{end}");
    server.ended();
}

#[test]
fn the_watchdog_hears_nothing_while_the_serving_process_hangs() {
    let (root, manager) = (public_directory(), Manager::new());
    let mut command = manager.command(root.path());
    let server = Running::of(command.env("WATCHDOG_USEC", "400000"));
    for _ in 0..3 {
        manager.message_with("WATCHDOG=1");
    }
    server.signal(Signal::STOP);
    // One may have been sent before the signal came.
    manager.hears("WATCHDOG=1", Duration::from_millis(400));
    assert!(!manager.hears("WATCHDOG=1", Duration::from_secs(2)));
    server.signal(Signal::CONT);
    manager.message_with("WATCHDOG=1");
}

#[test]
fn without_a_watchdog_there_are_no_signs_of_life() {
    let (root, manager) = (public_directory(), Manager::new());
    let mut command = manager.command(root.path());
    // For another process.
    command
        .env("WATCHDOG_USEC", "400000")
        .env("WATCHDOG_PID", "1");
    let _server = Running::of(&mut command);
    manager.message_with("READY=1");
    assert!(!manager.hears("WATCHDOG=1", Duration::from_secs(1)));
}

#[test]
fn the_manager_learns_the_main_process_before_the_new_version_is_ready() {
    let (root, manager) = (public_directory(), Manager::new());
    let socket = manager.directory.path().join("admin.sock");
    let mut command = manager.command(root.path());
    let mut server = Running::of(command.arg("--admin-socket").arg(&socket));
    manager.message_with("READY=1");
    manager.forget();
    let told = program()
        .args(["upgrade", "--socket"])
        .arg(&socket)
        .output()
        .expect("started");
    assert!(told.status.success());
    let new = Successor::told_by(&told.stdout);
    let main = manager.event();
    assert!(main.starts_with("MAINPID="), "{main}");
    let ready = manager.event();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    // No message comes from the old one.
    assert_eq!(server.wait(), 0);
    assert!(!manager.hears("STOPPING=1", Duration::from_millis(100)));
    new.signal(Signal::TERM);
    manager.message_with("STOPPING=1");
    server.ended();
}

/// The command line of a server that is started with a socket, as by systemd.
fn with_socket(listener: &TcpListener, names: &str, flags: &[&str]) -> Command {
    let socket = OwnedFd::from(listener.try_clone().expect("a handle"));
    // The shell's number becomes that of the server.
    let script =
        "LISTEN_PID=$$; LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$@\" 3<&0 </dev/null";
    let mut command = clean(Command::new("sh"));
    command
        .args(["-c", script, "sh"])
        .args([
            env!("CARGO_BIN_EXE_gridhaul-server"),
            "serve",
            "--anonymous",
        ])
        .args(flags)
        .env("LISTEN_FDNAMES", names)
        .stdin(Stdio::from(socket));
    command
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

#[test]
fn clients_of_a_socket_of_the_manager_are_served() {
    let root = public_directory();
    let (socket, address) = listener();
    let root = root.path().to_str().expect("UTF-8");
    let server = Running::of(&mut with_socket(
        &socket,
        "gridhaul.socket",
        &["--root", root],
    ));
    assert_eq!(server.address, address);
    Client::log_in(&server).expect("QUIT", "221");
    assert_eq!(server.stop().0, 0);
    // The manager has it still: a client waits for the next server.
    drop(std::net::TcpStream::connect(address).expect("the manager listens"));
}

#[test]
fn a_socket_that_does_not_fit_the_configuration_is_refused() {
    let root = public_directory();
    let (socket, address) = listener();
    let root = root.path().to_str().expect("UTF-8");
    let flags = ["--root", root, "--listen", "127.0.0.1:1"];
    let reason = fails(&mut with_socket(&socket, "gridftp", &flags));
    assert!(
        reason.contains("none for 127.0.0.1:1 of listen"),
        "{reason}"
    );
    let flags = ["--root", root, "--listen", "127.0.0.1:0"];
    let reason = fails(&mut with_socket(&socket, "metrics", &flags));
    let expected = format!("metrics-listen does not have {address}");
    assert!(reason.contains(&expected), "{reason}");
    let reason = fails(&mut with_socket(&socket, "one:two", &flags));
    assert!(reason.contains("LISTEN_FDNAMES"), "{reason}");
}

#[test]
fn a_version_that_hands_over_in_another_way_is_told_to_be_restarted() {
    let root = public_directory();
    let (socket, _) = listener();
    let root = root.path().to_str().expect("UTF-8");
    let mut command = with_socket(&socket, "bound-gridftp", &["--root", root]);
    let reason = fails(command.env("GRIDHAUL_UPGRADE", "2"));
    assert!(reason.contains("restart the server instead"), "{reason}");
}

#[test]
fn a_new_version_gets_the_sockets_of_the_manager() {
    let (root, place) = (public_directory(), public_directory());
    let (socket, address) = listener();
    let admin = place.path().join("admin.sock");
    let [root, admin] = [root.path(), &admin].map(|path| path.to_str().expect("UTF-8").to_owned());
    let flags = ["--root", &root, "--admin-socket", &admin];
    let mut server = Running::of(&mut with_socket(&socket, "gridftp", &flags));
    let told = program().args(["upgrade", "--socket", &admin]).output();
    let told = told.expect("started");
    let stderr = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{stderr}");
    let new = Successor::told_by(&told.stdout);
    assert_eq!(server.wait(), 0);
    assert_eq!(server.address, address);
    Client::log_in(&server).expect("QUIT", "221");
    new.signal(Signal::TERM);
    server.ended();
}
