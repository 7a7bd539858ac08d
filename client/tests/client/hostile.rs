//! Servers that do not keep to the protocol.

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::scripted::{Scripted, fails, gridhaul};

fn send(stream: &mut TcpStream, reply: &[u8]) -> bool {
    // The client may have gone.
    stream.write_all(reply).is_ok()
}

#[test]
fn preliminary_replies_do_not_prolong_the_time_limit() {
    let server = Scripted::start(Box::new(|line, stream| {
        let is_chosen = line == "FEAT";
        while is_chosen && send(stream, b"150 wait\r\n") {
            std::thread::sleep(Duration::from_millis(200));
        }
        is_chosen
    }));
    let started = Instant::now();
    let error = fails(&["sum", "--timeout", "1", "md5", &server.url("a")]);
    assert!(error.contains("no reply to FEAT within 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_flood_of_preliminary_replies_ends_the_session() {
    let server = Scripted::start(Box::new(|line, stream| {
        let is_chosen = line.starts_with("CKSM");
        while is_chosen && send(stream, b"112 still at it\r\n") {}
        is_chosen
    }));
    let error = fails(&["sum", "md5", &server.url("a")]);
    assert!(
        error.contains("more than 4096 preliminary replies to CKSM"),
        "{error}"
    );
}

#[test]
fn a_reply_without_an_end_is_bounded() {
    let server = Scripted::start(Box::new(|line, stream| {
        let is_chosen = line == "FEAT";
        if is_chosen && send(stream, b"211-Features\r\n") {
            while send(stream, b" SIZE\r\n") {}
        }
        is_chosen
    }));
    let error = fails(&["sum", "md5", &server.url("a")]);
    assert!(error.contains("a reply of more than"), "{error}");
}

#[test]
fn a_server_that_is_silent_during_a_checksum_is_given_up() {
    let server = Scripted::start(Box::new(|line, stream| {
        match line.split(' ').next() {
            // As long as the file is small, the time is that of other commands.
            Some("SIZE") => send(stream, b"213 999\r\n"),
            Some("CKSM") => true,
            _ => false,
        }
    }));
    let error = fails(&["sum", "--timeout", "1", "md5", &server.url("a")]);
    assert!(error.contains("no reply to CKSM within 1 s"), "{error}");
    let commands = server.commands();
    assert!(
        commands.contains(&"CKSM MD5 0 -1 /a".to_owned()),
        "{commands:?}"
    );
}

#[test]
fn a_host_that_does_not_answer_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = fails(&["sum", "md5", &format!("ftp://127.0.0.1:{port}/a")]);
    assert!(
        error.contains("cannot connect to ftp://127.0.0.1"),
        "{error}"
    );
}

const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Listeners at the address of the server and at that of another host, with the same port.
fn two_hosts() -> (TcpListener, TcpListener, u16) {
    loop {
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = own.local_addr().unwrap().port();
        match TcpListener::bind((OTHER, port)) {
            Ok(other) => {
                other.set_nonblocking(true).unwrap();
                return (own, other, port);
            }
            // Another program has it.
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
        }
    }
}

fn numbers(host: Ipv4Addr, port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    let host = host.octets().map(|byte| byte.to_string());
    format!("{},{high},{low}", host.join(","))
}

fn assert_no_connection(listener: &TcpListener) {
    let error = listener.accept().expect_err("no connection was wanted");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn no_server_makes_the_client_connect_to_another_host() {
    let (own, other, port) = two_hosts();
    let own = Mutex::new(own);
    let server = Scripted::start(Box::new(move |line, stream| match line {
        "PASV" => {
            let address = numbers(OTHER, port);
            send(stream, format!("227 ({address})\r\n").as_bytes())
        }
        "SIZE /a" => send(stream, b"213 5\r\n"),
        "RETR /a" => {
            send(stream, b"150 now\r\n");
            let (mut data, _) = own.lock().unwrap().accept().unwrap();
            send(&mut data, b"hello");
            drop(data);
            send(stream, b"226 done\r\n")
        }
        _ => false,
    }));
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("copy");
    let output = gridhaul(&["copy", &server.url("a"), copy.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}: {:?}", server.commands());
    assert_eq!(std::fs::read(copy).unwrap(), b"hello");
    assert_no_connection(&other);
}

#[test]
fn a_credential_that_was_sent_in_the_clear_admits_no_other_host() {
    let (own, other, port) = two_hosts();
    let own = Mutex::new(own);
    let server = Scripted::start(Box::new(move |line, stream| {
        match line.split(' ').next().unwrap_or_default() {
            "DCSC" | "DCAU" => send(stream, b"200 yes\r\n"),
            "PASV" => {
                let address = numbers(OTHER, port);
                send(stream, format!("227 ({address})\r\n").as_bytes())
            }
            "SIZE" => send(stream, b"213 5\r\n"),
            "RETR" => {
                send(stream, b"150 now\r\n");
                drop(own.lock().unwrap().accept().unwrap());
                send(stream, b"550 the connection came here\r\n")
            }
            _ => false,
        }
    }));
    let options = ["guc", "-data-cred", "auto", "-st", "5"];
    let place = tempfile::tempdir().unwrap();
    let copy = format!("file://{}", place.path().join("copy").display());
    let error = fails(&[&options[..], &[&server.url("a"), &copy]].concat());
    assert!(error.contains("came here"), "{error}");
    assert_no_connection(&other);
}

#[test]
fn stripes_at_other_hosts_are_replaced_by_one_address() {
    let (own, other, port) = two_hosts();
    let server = Scripted::start(Box::new(move |line, stream| match line {
        "FEAT" => send(
            stream,
            b"211-Features\r\n SPAS\r\n SPOR\r\n PARALLEL\r\n211 End\r\n",
        ),
        "SPAS" => {
            let hosts = [Ipv4Addr::LOCALHOST, OTHER].map(|host| numbers(host, port));
            let [one, two] = hosts;
            let reply = format!("229-Entering\r\n {one}\r\n {two}\r\n229 End\r\n");
            send(stream, reply.as_bytes())
        }
        "PASV" => {
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            let address = numbers(*address.ip(), address.port());
            send(stream, format!("227 ({address})\r\n").as_bytes())
        }
        "STOR /a" => {
            // A data connection comes, and the file is refused.
            let connected = own.accept().unwrap();
            let refused = send(stream, b"553 no\r\n");
            drop(connected);
            refused
        }
        _ => false,
    }));
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    std::fs::write(&source, "hello").unwrap();
    let error = fails(&[
        "copy",
        "-p",
        "2",
        source.to_str().unwrap(),
        &server.url("a"),
    ]);
    let commands = server.commands();
    let passive = commands.iter().map(String::as_str);
    let passive: Vec<_> = passive
        .filter(|one| matches!(*one, "SPAS" | "PASV"))
        .collect();
    assert_eq!(passive, ["SPAS", "PASV"], "{commands:?}: {error}");
    assert_no_connection(&other);
}
