//! Conditions that an administrator has to learn of: exhausted descriptors and ports, refused connections, aborted handshakes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use crate::client::Client;
use crate::processes::site;
use crate::program::{Running, public_directory, sample};
use gridhaul_skip::skipped;

/// The lines with these words.
fn lines<'a>(log: &'a str, words: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(words)).collect()
}

#[test]
fn exhausted_descriptors_are_told_once_with_advice() {
    let root = public_directory();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 150; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_gridhaul-server"))
        .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "--root"])
        .arg(root.path());
    let mut server = Running::of(&mut command);
    let connect = |_| TcpStream::connect(server.address).expect("the kernel accepts");
    let clients: Vec<TcpStream> = (0..200).map(connect).collect();
    let log = server.log_until("LimitNOFILE");
    assert!(log.contains("max-connections"), "{log}");
    drop(clients);
    // How few lines repeated failures get has a unit test in `telemetry/repeats.rs`.
    let (_, rest) = server.stop();
    assert_eq!(lines(&rest, "could not be accepted"), [""; 0]);
}

#[test]
fn an_exhausted_port_range_is_a_warning() {
    let root = public_directory();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let port = taken.local_addr().expect("an address").port();
    let range = format!("{port}-{port}");
    let server = Running::start(root.path(), &["--anonymous", "--port-range", &range]);
    let replies = server.dialogue(&["USER anonymous", "PASS x", "PASV", "EPSV"]);
    assert!(replies[3].starts_with("425"), "{replies:?}");
    let (_, log) = server.stop();
    let told = lines(&log, "no port for a data connection");
    assert_eq!(told.len(), 1, "{log}");
    assert!(
        told[0].contains("WARN") && told[0].contains("peer=127.0.0.1"),
        "{log}"
    );
}

#[test]
fn refused_data_connections_are_a_warning() {
    let root = public_directory();
    fs::write(root.path().join("file"), "content").expect("written");
    let server = Running::start(root.path(), &["--anonymous"]);
    let (mut client, _) = Client::connect(&server);
    for line in ["USER anonymous", "PASS x"] {
        client.send(line);
    }
    let data = client.passive();
    let stranger = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let stranger = stranger.expect("a socket");
    let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
    stranger.bind(&elsewhere.into()).expect("bound");
    stranger.connect(&data.into()).expect("connected");
    let mut own = TcpStream::connect(data).expect("connected");
    client.send("RETR file");
    let mut content = String::new();
    own.read_to_string(&mut content).expect("received");
    assert!(client.reply().starts_with("226"));
    let (_, log) = server.stop();
    let told = lines(&log, "data connections were refused");
    assert_eq!(told.len(), 1, "{log}");
    assert!(
        told[0].contains("WARN") && told[0].contains("refused=1"),
        "{log}"
    );
}

#[test]
fn an_aborted_handshake_is_a_failed_authentication() {
    let site = site();
    let trust = public_directory();
    for name in ["ca.pem", "ca.signing_policy"] {
        fs::copy(sample(name), trust.path().join(name)).expect("copied");
    }
    let map = trust.path().join("map");
    fs::write(&map, "").expect("written");
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let (cert, key) = (site.path().join("cert.pem"), site.path().join("key.pem"));
    let paths = [&cert, &key, &trust.path().to_owned(), &map].map(|path| text(path));
    let [cert, key, trust, map] = paths.each_ref().map(String::as_str);
    let mut flags = vec!["--anonymous", "--gsi", "--cert", cert, "--key", key];
    flags.extend(["--trust", trust, "--gridmap", map]);
    for mechanism in ["GSSAPI", "TLS"] {
        let mut server = Running::start(site.path(), &flags);
        let (mut client, _) = Client::connect(&server);
        let reply = client.send(&format!("AUTH {mechanism}"));
        assert!(
            reply.starts_with("334") || reply.starts_with("234"),
            "{reply}"
        );
        client.stream.flush().expect("sent");
        drop(client);
        let log = server.log_until("session closed");
        let failed = lines(&log, "authentication failed");
        assert_eq!(failed.len(), 1, "{log}");
        for words in ["WARN", mechanism, "handshake aborted"] {
            assert!(failed[0].contains(words), "{words}: {log}");
        }
        let closed = lines(&log, "session closed");
        assert!(closed[0].contains("handshake aborted"), "{log}");
    }
}

/// The server has a mount namespace of its own, with a full file system. Nothing is left on the machine.
#[test]
fn a_full_disk_is_a_warning_and_a_mistake_of_a_client_is_not() {
    let root = public_directory();
    let mounts = |command: &str| {
        let script = format!(
            "mount -t tmpfs -o size=64k,nr_inodes=4,mode=777 none \"$0\" && mkdir \"$0/a\" && {command}"
        );
        let mut namespace = Command::new("unshare");
        namespace.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        namespace.arg(root.path());
        namespace
    };
    let possible = mounts("true").output();
    if !possible
        .as_ref()
        .is_ok_and(|output| output.status.success())
    {
        skipped(&format!(
            "nothing can be mounted in a namespace here: {possible:?}"
        ));
        return;
    }
    let mut command = mounts(
        "exec \"$1\" serve --listen 127.0.0.1:0 --root \"$0\" --anonymous --anonymous-write",
    );
    let server = Running::of(command.arg(env!("CARGO_BIN_EXE_gridhaul-server")));
    let mut client = Client::log_in(&server);
    let mut data = client.begin(&[("STOR large", "150")]);
    // The server may close the connection before all of it is sent.
    let _ = data.write_all(&vec![7; 1 << 20]);
    drop(data);
    let reply = client.reply();
    assert!(reply.starts_with("552"), "{reply}");
    let replies = ["MKD b", "MKD c", "MKD d", "RMD missing"].map(|line| client.send(line));
    assert!(
        replies.iter().any(|reply| reply.starts_with("552")),
        "{replies:?}"
    );
    drop(client);
    let (_, log) = server.stop();
    let transfer = lines(&log, "transfer finished");
    assert!(
        transfer[0].contains("WARN") && transfer[0].contains("result=552"),
        "{log}"
    );
    let operations = lines(&log, "file operation");
    let of = |result: &str| {
        let found = operations.iter().find(|line| line.contains(result));
        *found.expect(result)
    };
    assert!(of("result=552").contains(" WARN audit"), "{log}");
    assert!(of("result=550").contains(" INFO audit"), "{log}");
}
