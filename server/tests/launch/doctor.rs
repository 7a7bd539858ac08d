//! `gridhaul-server doctor` beside real servers, sound ones and such that clients cannot use.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{Running, program, public_directory};

/// The report of the program, and its exit status.
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl Said {
    /// There is a line that begins so and has these words.
    #[track_caller]
    pub(crate) fn says(&self, begin: &str, words: &str) -> &Self {
        let line = self
            .text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .find(|line| line.starts_with(begin) && line.contains(words));
        assert!(line.is_some(), "no '{begin} ... {words}' in {}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn ends_with(&self, status: i32) -> &Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
}

/// The server's arguments but for the address, which `doctor` gets as it is.
fn doctor(server: SocketAddr, root: &Path, flags: &[&str]) -> Said {
    let done = program()
        .args(["doctor", "--listen", &server.to_string(), "--root"])
        .arg(root)
        .args(flags)
        .output()
        .expect("started");
    Said {
        status: done.status.code().expect("an exit status"),
        text: String::from_utf8(done.stdout).expect("UTF-8"),
    }
}

pub(crate) fn taken_port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    (listener, format!("{port}-{port}"))
}

#[test]
fn a_sound_server_has_no_errors() {
    let root = public_directory();
    let server = Running::start(root.path(), &["--anonymous"]);
    let disk = tempfile::tempdir().expect("a directory");
    let (address, directory) = (server.address.to_string(), disk.path().to_str());
    let flags = [
        "--anonymous",
        "--peer",
        &address,
        "--rtt",
        "1",
        "--disk",
        directory.expect("UTF-8"),
    ];
    doctor(server.address, root.path(), &flags)
        .ends_with(0)
        .says("ok control:", &format!("{address} greets after"))
        .says("ok data: EPSV:", "can be reached")
        .says("ok data: PASV:", "can be reached")
        .says("ok path:", "ms away, and packets of 65535 bytes fit")
        .says("ok tcp:", "congestion control is")
        .says(
            "ok loopback:",
            "one TCP channel within this machine carries",
        )
        .says("ok disk:", "written and flushed")
        .says("", "clock: it says")
        .says("0 errors,", "");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let root = public_directory();
    let (listener, _) = taken_port();
    let address = listener.local_addr().expect("bound");
    drop(listener);
    doctor(address, root.path(), &["--anonymous"])
        .ends_with(1)
        .says("error control:", "no program listens there");
}

#[test]
fn another_program_at_the_port_is_an_error() {
    let root = public_directory();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream
            .write_all(b"SSH-2.0-other\r\n")
            .expect("a short line");
    });
    doctor(address, root.path(), &["--anonymous"])
        .ends_with(1)
        .says("error control:", "another program listens there");
    answering.join().expect("no panic");
}

#[test]
fn a_port_range_that_others_hold_is_an_error() {
    let root = public_directory();
    let (_taken, range) = taken_port();
    let flags = ["--anonymous", "--port-range", &range];
    let server = Running::start(root.path(), &flags);
    doctor(server.address, root.path(), &flags)
        .ends_with(1)
        .says("error data:", "EPSV is refused with 425")
        .says("error port-range:", "1 of the 1 port in");
}

#[test]
fn a_wrong_advertised_address_is_an_error() {
    let root = public_directory();
    let (free, range) = taken_port();
    drop(free);
    // Nothing listens there: data ports are at 127.0.0.1.
    let flags = ["--advertise-address", "127.0.0.2", "--port-range", &range];
    let with_anonymous = [&flags[..], &["--anonymous"]].concat();
    let server = Running::start(root.path(), &with_anonymous);
    doctor(server.address, root.path(), &with_anonymous)
        .ends_with(1)
        .says("ok control:", "greets after")
        .says(
            "error data: PASV tells clients 127.0.0.2:",
            "correct advertise-address",
        );
    // Without a login, a listener of its own stands for the server.
    let passwords = root.path().join("passwords");
    std::fs::write(&passwords, "").expect("written");
    let passwords = ["--passwords", passwords.to_str().expect("UTF-8")];
    doctor(
        server.address,
        root.path(),
        &[&flags[..], &passwords].concat(),
    )
    .ends_with(1)
    .says(
        "error data: PASV tells clients 127.0.0.2:",
        "correct advertise-address",
    );
}

#[test]
fn an_expired_certificate_is_an_error() {
    let root = public_directory();
    let path = |name: &str| root.path().join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (path("host.pem"), path("host.key"));
    let request = path("request");
    for arguments in [
        &["req", "-nodes", "-newkey", "ec"][..],
        &["x509", "-req", "-days", "-1", "-in", &request],
    ] {
        let mut made = Command::new("openssl");
        made.args(arguments);
        if arguments[0] == "req" {
            made.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj"])
                .args(["/CN=localhost", "-keyout", &key, "-out", &request]);
        } else {
            made.args(["-signkey", &key, "-out", &cert]);
        }
        let made = made.output().expect("openssl is installed");
        assert!(made.status.success(), "{made:?}");
    }
    let flags = ["--anonymous", "--cert", &cert, "--key", &key];
    let server = Running::start(root.path(), &flags);
    doctor(server.address, root.path(), &flags)
        .ends_with(1)
        .says("ok control:", "greets after")
        .says("error certificate:", "has expired on");
}

/// Gets a file in stream mode.
fn get(server: &Running, name: &str) -> usize {
    let stream = TcpStream::connect(server.address).expect("connected");
    let mut replies = BufReader::new(stream.try_clone().expect("a handle"));
    let mut ask = |line: &str| {
        (&stream)
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("sent");
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("a reply");
        reply
    };
    // Each answer is that to the line before: the greeting is first.
    for line in ["USER anonymous", "PASS a@", "TYPE I"] {
        ask(line);
    }
    assert!(ask("EPSV").starts_with("200 "));
    let reply = ask(&format!("RETR {name}"));
    let port = reply.split('|').nth(3).expect("a port");
    let port: u16 = port.parse().expect("a number");
    let mut data = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let mut content = Vec::new();
    data.read_to_end(&mut content).expect("received");
    for code in ["150 ", "226 "] {
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("a reply");
        assert!(reply.starts_with(code), "{reply}");
    }
    content.len()
}

#[test]
fn the_transfers_of_the_log_are_explained() {
    for format in ["text", "json"] {
        let root = public_directory();
        let file = std::fs::File::create(root.path().join("file")).expect("made");
        file.set_len(1 << 20).expect("set");
        let log = root.path().join("log");
        let log = log.to_str().expect("UTF-8");
        let flags = ["--anonymous", "--log-file", log, "--log-format", format];
        let server = Running::start(root.path(), &flags);
        assert_eq!(get(&server, "file"), 1 << 20);
        doctor(server.address, root.path(), &flags)
            .ends_with(0)
            .says(
                "ok transfers: 1 of the last 1 transfer: RETR /file at",
                "too short to tell",
            );
    }
}

#[test]
fn a_limit_that_held_a_transfer_back_is_named() {
    const BYTES: usize = 12 << 20;
    let root = public_directory();
    let file = std::fs::File::create(root.path().join("file")).expect("made");
    file.set_len(BYTES as u64).expect("set");
    let (log, config) = (root.path().join("log"), root.path().join("config"));
    let limit = "[[limit]]\nname = 'visitors'\nuser = 'anonymous'\nbandwidth = '8M'\n";
    let text = format!("anonymous = true\nlog-file = '{}'\n{limit}", log.display());
    std::fs::write(&config, text).expect("written");
    let flags = ["--config", config.to_str().expect("UTF-8")];
    let server = Running::start(root.path(), &flags);
    assert_eq!(get(&server, "file"), BYTES);
    doctor(server.address, root.path(), &flags)
        .ends_with(0)
        .says(
            "ok transfers: 1 of the last 1 transfer:",
            "it waited for bandwidth",
        )
        .says("ok transfers:", "those with a bandwidth: visitors")
        .says(
            "ok transfers:",
            "the bandwidth of a [[limit]] was used up: raise it",
        );
}

#[test]
fn users_with_passwords_try_the_data_ports() {
    let root = public_directory();
    let path = |name: &str| root.path().join(name).to_str().expect("UTF-8").to_owned();
    let (passwords, secret) = (path("passwords"), path("secret"));
    let mut made = program()
        .args(["passwd", &passwords, "ann"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = made.stdin.take().expect("piped");
    input.write_all(b"correct horse\n").expect("written");
    drop(input);
    assert!(made.wait().expect("ended").success());
    let flags = ["--passwords", &passwords];
    let server = Running::start(root.path(), &flags);
    doctor(server.address, root.path(), &flags)
        .ends_with(0)
        .says(
            "ok data: the server lets no anonymous user in",
            "--login NAME --password-file FILE",
        );
    let login = [
        "--passwords",
        &passwords,
        "--login",
        "ann",
        "--password-file",
        &secret,
    ];
    doctor(server.address, root.path(), &login)
        .ends_with(1)
        .says(
            "error data: the password in",
            "write it into the first line",
        );
    std::fs::write(&secret, "wrong\n").expect("written");
    doctor(server.address, root.path(), &login)
        .ends_with(0)
        .says(
            "warning data: no login as ann: 530",
            "correct the name and the password",
        );
    std::fs::write(&secret, "correct horse\n").expect("written");
    doctor(server.address, root.path(), &login)
        .ends_with(0)
        .says("ok data: EPSV:", "can be reached");
}

#[test]
fn the_server_is_asked_over_its_socket() {
    let root = public_directory();
    let socket = root.path().join("admin.sock");
    let flags = [
        "--anonymous",
        "--admin-socket",
        socket.to_str().expect("UTF-8"),
    ];
    let server = Running::start(root.path(), &flags);
    let found = doctor(server.address, root.path(), &flags);
    found
        .ends_with(0)
        .says("ok server:", "0 transfers run and 0 wait");
    let other = Running::start(root.path(), &["--anonymous"]);
    doctor(other.address, root.path(), &flags).says(
        "warning server: the administration socket is that of another server",
        "give the admin-socket",
    );
    drop(server);
    doctor(other.address, root.path(), &flags).says(
        "warning server: the administration socket",
        "run this as root",
    );
}
