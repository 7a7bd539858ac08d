//! What the program promises to its service manager and its administrator.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::program::{Running, fails, is_root, program, public_directory};

#[test]
fn the_launch_contract_is_kept() {
    let root = public_directory();
    std::fs::write(root.path().join("README.md"), "hello").expect("written");
    let mut server = Running::start(root.path(), &["--anonymous"]);
    let replies = server.dialogue(&[
        "USER anonymous",
        "PASS x@",
        "TYPE I",
        "SIZE README.md",
        "MKD d",
    ]);
    assert!(replies[0].starts_with("220 "), "{replies:?}");
    assert_eq!(replies[2], "230 User anonymous logged in.");
    assert_eq!(replies[4], "213 5");
    assert!(replies[5].starts_with("550"), "{replies:?}");
    let address = server.address;
    for expected in [
        "Try it:".to_owned(),
        format!("gridhaul copy ftp://{address}/README.md /tmp/"),
        format!("globus-url-copy ftp://{address}/README.md file:///tmp/README.md"),
    ] {
        let mut line = String::new();
        server.stdout.read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), expected);
    }
    let (status, log) = server.stop();
    assert_eq!(status, 0, "{log}");
    if is_root() {
        assert!(
            log.contains("running as another account user=\"nobody\""),
            "{log}"
        );
    }
}

#[test]
fn signals_open_logs_anew_and_read_users_again() {
    let root = public_directory();
    let files = tempfile::tempdir().expect("a directory");
    let (users, log) = (files.path().join("users"), files.path().join("log"));
    passwd(&users, "ann", "one");
    let flag = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    // The account that tests run as must be able to read the files again.
    let user = if is_root() { "nobody" } else { "" };
    if !user.is_empty() {
        chown_to_nobody(files.path());
        chown_to_nobody(&users);
    }
    let server = Running::start(
        root.path(),
        &[
            "--passwords",
            &flag(&users),
            "--log-file",
            &flag(&log),
            "--log-format",
            "json",
        ],
    );
    let login = |name: &str, password: &str| {
        let replies = server.dialogue(&[&format!("USER {name}"), &format!("PASS {password}")]);
        replies[2][..3].to_owned()
    };
    assert_eq!(login("ann", "one"), "230");
    assert_eq!(login("bob", "two"), "530");
    passwd(&users, "bob", "two");
    let moved = files.path().join("log.1");
    std::fs::rename(&log, &moved).expect("renamed");
    server.signal(Signal::HUP);
    while !log.exists()
        || !std::fs::read_to_string(&log)
            .expect("read")
            .contains("reloaded")
    {
        std::thread::yield_now();
    }
    assert_eq!(login("bob", "two"), "230");
    let (status, _) = server.stop();
    assert_eq!(status, 0);
    let old = std::fs::read_to_string(moved).expect("read");
    assert!(
        old.contains("\"message\":\"logged in\"") && old.contains("\"user\":\"ann\""),
        "{old}"
    );
    assert!(!old.contains("bob\",\"read_only"), "{old}");
}

fn chown_to_nobody(path: &Path) {
    let nobody = nix::unistd::User::from_name("nobody")
        .expect("asked")
        .expect("there is a nobody");
    nix::unistd::chown(path, Some(nobody.uid), Some(nobody.gid)).expect("root may");
}

fn passwd(file: &Path, name: &str, password: &str) {
    let mut child = program()
        .arg("passwd")
        .arg(file)
        .arg(name)
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    stdin
        .write_all(format!("{password}\n").as_bytes())
        .expect("sent");
    drop(stdin);
    assert!(child.wait().expect("ended").success());
}

#[test]
fn mistakes_are_named_before_anything_is_served() {
    let root = public_directory();
    let serve = |flags: &[&str]| {
        fails(
            program()
                .args(["serve", "--listen", "127.0.0.1:0", "--root"])
                .arg(root.path())
                .args(flags),
        )
    };
    assert!(serve(&[]).contains("no user could log in"));
    assert!(
        serve(&["--anonymous", "--stripes", "99"]).contains("stripes must be between 1 and 64")
    );
    let text = serve(&["--anonymous", "--stack", "udt"]);
    assert!(text.contains("udt"), "{text}");
    let text = fails(program().args(["--anonymous", "--root", "/nonexistent/directory"]));
    assert!(
        text.contains("cannot serve /nonexistent/directory: "),
        "{text}"
    );
    assert!(text.contains("No such file or directory"), "{text}");

    let file = root.path().join("config.toml");
    std::fs::write(&file, "anonymous = true\nidle_timeout = 5\n").expect("written");
    let text = serve(&["--config", file.to_str().expect("UTF-8")]);
    assert!(
        text.contains("line 2") && text.contains("idle_timeout"),
        "{text}"
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let text = fails(program().args(["serve", "--anonymous", "--listen", &address]));
    let words = format!("--listen: {address} is in use (Address already in use");
    assert!(text.contains(&words), "{text}");
}

#[test]
fn a_second_signal_does_not_wait_for_transfers() {
    let root = public_directory();
    std::fs::File::create(root.path().join("large"))
        .expect("made")
        .set_len(1 << 40)
        .expect("sparse");
    let server = Running::start(root.path(), &["--anonymous", "--grace", "3600"]);
    let mut stream = TcpStream::connect(server.address).expect("connected");
    let mut replies = BufReader::new(stream.try_clone().expect("a handle"));
    let mut line = String::new();
    stream
        .write_all(b"USER ftp\r\nPASS x\r\nCKSM SHA512 0 -1 large\r\n")
        .expect("sent");
    for _ in 0..3 {
        line.clear();
        replies.read_line(&mut line).expect("a reply");
    }
    server.signal(Signal::TERM);
    // The listener is closed when the first signal has been seen.
    while TcpStream::connect(server.address).is_ok() {
        std::thread::yield_now();
    }
    let (status, log) = server.stop();
    assert_eq!(status, 0, "{log}");
}
