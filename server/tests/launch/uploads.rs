//! An upload under a temporary name survives the death of the server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::program::{Running, public_directory};

/// A client that has logged in.
struct Client {
    control: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Running) -> Self {
        let control = TcpStream::connect(server.address).expect("connected");
        let limit = Some(Duration::from_secs(20));
        control.set_read_timeout(limit).expect("set");
        let mut client = Self {
            control: BufReader::new(control),
        };
        client.reply("220");
        for (line, code) in [("USER ftp", "331"), ("PASS x", "230"), ("TYPE I", "200")] {
            client.ask(line, code);
        }
        client
    }

    fn reply(&mut self, code: &str) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("a reply");
        assert!(line.starts_with(code), "{line}");
        line
    }

    fn ask(&mut self, line: &str, code: &str) -> String {
        let control = self.control.get_mut();
        control
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("sent");
        self.reply(code)
    }

    /// Begins a transfer over a passive connection.
    fn begin(&mut self, lines: &[(&str, &str)]) -> TcpStream {
        let reply = self.ask("EPSV", "229");
        let port = reply.split('|').nth(3).expect("a port");
        let port = port.parse().expect("a number");
        let data = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        for (line, code) in lines {
            self.ask(line, code);
        }
        data
    }
}

#[test]
fn an_upload_restarts_after_the_server_was_killed() {
    let root = public_directory();
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(root.path(), all).expect("set");
    fs::write(root.path().join("file"), "old").expect("written");
    let all = fs::Permissions::from_mode(0o666);
    fs::set_permissions(root.path().join("file"), all).expect("set");
    let flags = ["--anonymous", "--anonymous-write", "--atomic-uploads", "*"];
    let part = root.path().join(".file.gridhaul-part");

    let server = Running::start(root.path(), &flags);
    let mut client = Client::new(&server);
    let mut data = client.begin(&[("STOR file", "150")]);
    data.write_all(b"0123456789").expect("sent");
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read(&part).ok().as_deref() != Some(b"0123456789") {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    server.signal(Signal::KILL);
    let mut rest = Vec::new();
    // The connection ends with the process.
    let _ = data.read_to_end(&mut rest);
    drop(server);
    assert_eq!(fs::read(root.path().join("file")).expect("there"), b"old");

    let server = Running::start(root.path(), &flags);
    let mut client = Client::new(&server);
    let mut data = client.begin(&[("REST 10", "350"), ("STOR file", "150")]);
    data.write_all(b"abc").expect("sent");
    drop(data);
    client.reply("226");
    let content = fs::read(root.path().join("file")).expect("there");
    assert_eq!(content, b"0123456789abc");
    assert!(!part.exists());
}
