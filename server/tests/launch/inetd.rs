//! The program as inetd and xinetd start it, and for a single connection: `gct -i` and `gct -1`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::grid_client::{GridClient, IDENTITY};
use crate::program::{has_root, is_root, program};
use crate::security::Site;

/// inetd, with a port.
struct Inetd {
    listener: TcpListener,
    address: SocketAddr,
}

impl Inetd {
    fn at(place: &str) -> Self {
        let listener = TcpListener::bind(place).expect("bound");
        let port = listener.local_addr().expect("bound").port();
        Self {
            listener,
            address: ([127, 0, 0, 1], port).into(),
        }
    }

    /// Accepts a connection, and starts the program with it as `nowait` says, except for standard error.
    fn accept(&self, command: &mut Command) -> Child {
        let (connection, _) = self.listener.accept().expect("accepted");
        start(connection, command)
    }

    /// Starts the program with the listener, as `wait` says.
    fn wait(&self, command: &mut Command) -> Child {
        start(&self.listener, command)
    }
}

fn start(socket: impl AsFd, command: &mut Command) -> Child {
    let copy = || Stdio::from(copied(&socket));
    let child = command.stdin(copy()).stdout(copy()).spawn();
    // The command has copies of the socket.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    child.expect("started")
}

fn copied(socket: &impl AsFd) -> OwnedFd {
    socket.as_fd().try_clone_to_owned().expect("a copy")
}

/// `gct` with these arguments, and without files of this machine.
fn gct(arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["gct", "-c", "none"]).args(arguments);
    command.stderr(Stdio::piped());
    command
}

/// As [`gct`], for anonymous users, whom root must give an account.
fn anonymous(arguments: &[&str]) -> Command {
    let mut command = gct(arguments);
    command.arg("-aa");
    if is_root() {
        command.args(["-anonymous-user", "nobody"]);
    }
    command
}

/// A site whose client has the account `nobody`.
fn site() -> Site {
    let site = Site::new();
    let map = format!("\"{IDENTITY}\" nobody\n");
    fs::write(site.path("grid-mapfile"), map).expect("written");
    fs::create_dir(site.path("home")).expect("made");
    let nobody = nix::unistd::User::from_name("nobody").expect("asked");
    let nobody = nobody.expect("it is there").uid.as_raw();
    std::os::unix::fs::chown(site.path("home"), Some(nobody), None).expect("root may");
    site
}

/// As [`gct`], for users with certificates.
fn grid(site: &Site, arguments: &[&str]) -> Command {
    let mut command = gct(arguments);
    for (variable, name) in [
        ("X509_USER_CERT", "host.pem"),
        ("X509_USER_KEY", "host.key"),
        ("X509_CERT_DIR", "certificates"),
        ("GRIDMAP", "grid-mapfile"),
    ] {
        command.env(variable, site.path(name));
    }
    command
}

/// Waits until all processes of the program have ended, because each has standard error.
fn ended(mut child: Child) -> (ExitStatus, String) {
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("piped");
    stderr.read_to_string(&mut said).expect("UTF-8");
    (child.wait().expect("ended"), said)
}

fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).expect("sent");
}

/// Sends these lines, and reads until the end.
fn dialogue(address: SocketAddr, lines: &'static str) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(lines.as_bytes()).expect("sent");
        let mut said = String::new();
        // A server that refuses may close the connection before it has read all.
        let _ = stream.read_to_string(&mut said);
        said
    })
}

fn codes(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.get(..4)).collect()
}

#[test]
fn a_user_of_inetd_has_the_account_of_the_map() {
    if !has_root() {
        return;
    }
    let (site, inetd) = (site(), Inetd::at("127.0.0.1:0"));
    let (address, key) = (inetd.address, site.path("host.key"));
    let client = thread::spawn(move || GridClient::connect(address, &key));
    let log = site.text("log");
    let child = inetd.accept(&mut grid(&site, &["-i", "-l", &log, "-d", "ALL"]));
    let mut client = client.join().expect("no panic");
    let welcome = client.log_in();
    assert!(welcome.starts_with("230"), "{welcome}");
    let made = site.path("home").join("made");
    let reply = client.command(&format!("MKD {}", made.display()));
    assert!(reply.starts_with("257"), "{reply}");
    let refused = client.command(&format!("MKD {}", site.text("other")));
    assert!(refused.contains("PERMISSION_DENIED"), "{refused}");
    let rest = std::iter::from_fn(|| client.reply());
    assert!(rest.into_iter().any(|line| line.starts_with("550 ")));
    let owner = fs::metadata(made).expect("made").uid();
    let home = fs::metadata(site.path("home")).expect("there").uid();
    assert_eq!(owner, home);
    assert!(client.command("QUIT").starts_with("221"));
    let (status, said) = ended(child);
    assert!(status.success(), "{said}");
    let log = fs::read_to_string(log).expect("written");
    assert!(log.contains("account=\"nobody\""), "{log}");
}

#[test]
fn a_connection_of_inetd_is_served_and_gets_replies_only() {
    let inetd = Inetd::at("127.0.0.1:0");
    let serve = |arguments: &[&str]| {
        let said = dialogue(
            inetd.address,
            "USER anonymous\r\nPASS x\r\nREIN\r\nUSER anonymous\r\nPASS x\r\nQUIT\r\n",
        );
        let (connection, _) = inetd.listener.accept().expect("accepted");
        let mut command = anonymous(arguments);
        // As inetd does it.
        command.stderr(copied(&connection));
        let mut child = start(connection, &mut command);
        drop(command);
        (child.wait().expect("ended"), said.join().expect("no panic"))
    };
    let (status, said) = serve(&["-i"]);
    assert!(status.success(), "{said}");
    let all = ["220 ", "331 ", "230 ", "220 ", "331 ", "230 ", "221 "];
    assert_eq!(codes(&said), all, "{said}");
    for wrong in [["-l", "/nonexistent/log"], ["-p", "none"], ["-html", "-i"]] {
        let (status, said) = serve(&[&["-i"][..], &wrong].concat());
        assert_eq!((status.success(), said.as_str()), (false, ""), "{wrong:?}");
    }
}

#[test]
fn a_client_of_inetd_that_does_not_log_in_is_ended() {
    let inetd = Inetd::at("127.0.0.1:0");
    let said = dialogue(inetd.address, "NOOP\r\n");
    let child = inetd.accept(&mut anonymous(&["-i", "-control-preauth-timeout", "1"]));
    let (status, log) = ended(child);
    let said = said.join().expect("no panic");
    assert!(status.success(), "{log}");
    assert_eq!(codes(&said).last(), Some(&"421 "), "{said}");
}

#[test]
fn a_server_of_inetd_without_a_client_ends() {
    let inetd = Inetd::at("127.0.0.1:0");
    drop(TcpStream::connect(inetd.address).expect("connected"));
    let (status, log) = ended(inetd.accept(&mut anonymous(&["-i"])));
    assert!(status.success(), "{log}");

    let output = anonymous(&["-i"]).output().expect("started");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told.contains("standard input is no TCP connection"),
        "{told}"
    );
}

#[test]
fn a_socket_of_inetd_that_listens_is_served_until_the_end_of_the_server() {
    if !has_root() {
        return;
    }
    // As the one of xinetd, it is for IPv4 as well.
    let (site, inetd) = (site(), Inetd::at("[::]:0"));
    let child = inetd.wait(&mut grid(&site, &["-i", "-p", "2811"]));
    let log_in = || GridClient::connect(inetd.address, &site.path("host.key"));
    let (mut first, mut second) = (log_in(), log_in());
    assert!(first.log_in().starts_with("230"));
    assert!(second.log_in().starts_with("230"));
    assert!(first.command("QUIT").starts_with("221"));
    assert!(log_in().log_in().starts_with("230"), "it goes on");
    terminate(&child);
    let (status, said) = ended(child);
    assert!(status.success(), "{said}");
}

#[test]
fn xinetd_does_not_start_a_server_that_fails_again_and_again() {
    let inetd = Inetd::at("127.0.0.1:0");
    let begun = Instant::now();
    let (status, said) = ended(inetd.wait(&mut gct(&["-i", "-bogus"])));
    assert!(!status.success() && said.contains("-bogus"), "{said}");
    assert!(begun.elapsed() > Duration::from_secs(2));
}

#[test]
fn the_server_of_a_single_connection_ends_after_it() {
    let mut command = anonymous(&["-1", "-p", "0", "-control-interface", "127.0.0.1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let address = line.trim_end().strip_prefix("Server listening at ");
    let address: SocketAddr = address.expect("the contract").parse().expect("an address");
    let mut only = TcpStream::connect(address).expect("connected");
    let mut replies = BufReader::new(only.try_clone().expect("a handle")).lines();
    let greeting = replies.next().expect("a reply").expect("UTF-8");
    assert!(greeting.starts_with("220 "), "{greeting}");
    TcpStream::connect(address).expect_err("it does not listen any more");
    only.write_all(b"QUIT\r\n").expect("sent");
    let last = replies.next().expect("a reply").expect("UTF-8");
    assert!(last.starts_with("221 "), "{last}");
    let (status, said) = ended(child);
    assert!(status.success(), "{said}");
}
