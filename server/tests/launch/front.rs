//! Clients between the process that listens and the one that serves them.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::client::Client;
use crate::processes::{child, kill, site};
use crate::program::{Running, public_directory, sample, text};

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(60);

fn write(client: &mut Client, bytes: &[u8]) {
    client.stream.write_all(bytes).expect("sent");
}

/// The codes of the next replies.
fn codes<const COUNT: usize>(client: &mut Client) -> [String; COUNT] {
    [(); COUNT].map(|()| client.reply()[..3].to_owned())
}

#[test]
fn the_process_that_listens_has_no_file() {
    let root = public_directory();
    fs::write(root.path().join("f"), "x").expect("written");
    let server = Running::start(root.path(), &["--anonymous"]);
    let replies = server.dialogue(&["USER ftp", "PASS x", "TYPE I", "SIZE f"]);
    assert_eq!(replies[4], "213 1");
    let front = child(&server, "gh-front");
    let descriptors = fs::read_dir(format!("/proc/{front}/fd")).expect("a process");
    for descriptor in descriptors {
        let Ok(link) = fs::read_link(descriptor.expect("listed").path()) else {
            continue;
        };
        let link = link.to_str().expect("UTF-8");
        let is_no_file = ["socket:", "anon_inode:", "pipe:"]
            .iter()
            .any(|kind| link.starts_with(kind));
        assert!(is_no_file || link == "/dev/null", "{link}");
    }
    // Connections are accepted there, and by no other process.
    let listens = |process: u32| {
        let filter = fs::read_to_string(format!("/proc/{process}/net/tcp")).expect("a process");
        let port = format!(":{:04X} ", server.address.port());
        let inode = filter.lines().find(|line| {
            let mut words = line.split_whitespace();
            let local = words.nth(1).unwrap_or_default();
            format!("{local} ").ends_with(&port) && words.nth(1) == Some("0A")
        });
        let inode = inode
            .and_then(|line| line.split_whitespace().nth(9))
            .map(str::to_owned);
        let socket = format!("socket:[{}]", inode.expect("it listens"));
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("a process");
        descriptors
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .any(|link| link.to_str() == Some(&socket))
    };
    assert!(listens(front));
    assert!(!listens(server.id()));
    assert!(!listens(child(&server, "gh-login")));
}

#[test]
fn what_a_client_sends_ahead_of_its_login_comes_in_order() {
    let root = public_directory();
    let server = Running::start(root.path(), &["--anonymous"]);
    let (mut client, _) = Client::connect(&server);
    write(
        &mut client,
        b"USER ftp\r\nPASS x\r\nPWD\r\n\xff\xf4NOOP\r\nPW",
    );
    assert_eq!(codes(&mut client), ["331", "230", "257", "200"]);
    write(&mut client, b"D\r\n");
    assert_eq!(codes(&mut client), ["257"]);
    // And back again, with what follows `REIN`.
    write(
        &mut client,
        b"REIN\r\nPWD\r\nXYZZY\r\nUSER ftp\r\nPASS x\r\nTYPE I\r\nPW",
    );
    assert_eq!(
        codes(&mut client),
        ["220", "530", "500", "331", "230", "200"]
    );
    write(&mut client, b"D\r\nQUIT\r\n");
    assert_eq!(codes(&mut client), ["257", "221"]);
    assert_eq!(client.reply(), "");
    let (status, log) = server.stop();
    assert_eq!(status, 0);
    // It is one session.
    assert_eq!(log.matches("session opened").count(), 1, "{log}");
    assert_eq!(log.matches("session closed").count(), 1, "{log}");
}

/// A connection that trusts the authority of the samples.
fn tls(version: &'static rustls::SupportedProtocolVersion) -> rustls::ClientConnection {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(sample("ca.pem")).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    rustls::ClientConnection::new(Arc::new(config), name).expect("a connection")
}

fn expect_codes(replies: &mut impl BufRead, codes: &[&str]) {
    for code in codes {
        let mut line = String::new();
        replies.read_line(&mut line).expect("a reply");
        assert!(line.starts_with(code), "{code}: {line}");
    }
}

#[test]
fn what_a_client_sends_ahead_over_tls_comes_in_order() {
    let site = site();
    let text = |name: &str| site.path().join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (text("cert.pem"), text("key.pem"));
    let flags = ["--anonymous", "--cert", &cert, "--key", &key];
    let server = Running::start(site.path(), &flags);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (mut client, _) = Client::connect(&server);
        assert!(client.send("AUTH TLS").starts_with("234"));
        let mut stream = rustls::StreamOwned::new(tls(version), client.stream);
        // More than one record, the last line of which is not whole.
        stream
            .write_all(b"PBSZ 0\r\nPROT P\r\nUSER ftp\r\nPASS x\r\nPWD\r\n")
            .expect("sent");
        stream.write_all(b"NOOP\r\nPW").expect("sent");
        let mut stream = BufReader::new(stream);
        expect_codes(&mut stream, &["200", "200", "331", "230", "257", "200"]);
        let rest = b"D\r\nREIN\r\nQUIT\r\n";
        stream.get_mut().write_all(rest).expect("sent");
        expect_codes(&mut stream, &["257", "502", "221"]);
        let mut line = String::new();
        // It says goodbye.
        assert_eq!(stream.read_line(&mut line).expect("the end"), 0);
    }
}

#[test]
fn clients_who_are_served_keep_their_places() {
    let root = public_directory();
    let server = Running::start(
        root.path(),
        &[
            "--anonymous",
            "--max-connections",
            "2",
            "--penalty-exempt",
            "127.0.0.0/8",
        ],
    );
    let logged_in = || {
        let (mut client, greeting) = Client::connect(&server);
        assert!(greeting.starts_with("220"), "{greeting}");
        client.send("USER ftp");
        let reply = client.send("PASS x");
        assert!(reply.starts_with("230"), "{reply}");
        client
    };
    let mut clients = [logged_in(), logged_in()];
    let (_, refusal) = Client::connect(&server);
    assert!(refusal.starts_with("421"), "{refusal}");
    // They do not lose them by beginning anew.
    assert!(clients[0].send("REIN").starts_with("220"));
    let (_, refusal) = Client::connect(&server);
    assert!(refusal.starts_with("421"), "{refusal}");
    let [mut first, mut second] = clients;
    assert!(second.send("NOOP").starts_with("200"));
    assert!(first.send("QUIT").starts_with("221"));
    let begun = Instant::now();
    while !Client::connect(&server).1.starts_with("220") {
        assert!(begun.elapsed() < TIME_LIMIT, "the place is not there again");
        std::thread::yield_now();
    }
}

#[test]
fn what_the_front_process_counts_is_on_the_page_of_metrics() {
    let root = public_directory();
    let flags = ["--anonymous", "--metrics-listen", "127.0.0.1:0"];
    let mut server = Running::start(root.path(), &flags);
    let mut line = String::new();
    server.stdout.read_line(&mut line).expect("a line");
    let address = line
        .trim()
        .strip_prefix("Metrics at http://")
        .and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.expect("the contract").to_owned();
    let (mut user, _) = Client::connect(&server);
    user.send("USER ftp");
    assert!(user.send("PASS x").starts_with("230"));
    let (mut stranger, _) = Client::connect(&server);
    stranger.send("USER ann");
    assert!(stranger.send("PASS x").starts_with("530"));
    let mut stream = TcpStream::connect(&address).expect("connected");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("sent");
    let page = std::io::read_to_string(stream).expect("UTF-8");
    for line in [
        "gridhaul_sessions_open 2",
        "gridhaul_sessions_before_login 1",
        "gridhaul_sessions_opened_total 2",
        "gridhaul_logins_total{result=\"success\"} 1",
        "gridhaul_logins_total{result=\"failure\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
}

#[test]
fn a_server_without_descriptors_serves_again_when_there_are_some() {
    let root = public_directory();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_gridhaul-server"))
        .args(["serve", "--listen", "127.0.0.1:0", "--anonymous"])
        .args(["--penalty-exempt", "127.0.0.0/8", "--root"])
        .arg(root.path());
    let server = Running::of(&mut command);
    let log_in = || {
        let (mut client, _) = Client::connect(&server);
        client.send("USER ftp");
        let reply = client.send("PASS x");
        (client, reply)
    };
    let mut clients = Vec::new();
    loop {
        let (client, reply) = log_in();
        if !reply.starts_with("230") {
            break;
        }
        clients.push(client);
        assert!(clients.len() < 128, "there is no limit");
    }
    assert!(clients.len() > 4, "{} had room", clients.len());
    // Those who are served stay.
    assert!(clients[0].send("NOOP").starts_with("200"));
    drop(clients);
    let begun = Instant::now();
    while !log_in().1.starts_with("230") {
        assert!(begun.elapsed() < TIME_LIMIT, "it serves no client any more");
        std::thread::yield_now();
    }
}

#[test]
fn to_begin_anew_is_no_way_to_guess_on() {
    let root = public_directory();
    let users = root.path().join("users");
    crate::processes::set_password(&users);
    fs::set_permissions(&users, Permissions::from_mode(0o644)).expect("set");
    let flags = [
        "--passwords",
        users.to_str().expect("UTF-8"),
        "--max-login-attempts",
        "2",
    ];
    let server = Running::start(root.path(), &flags);
    let (mut client, _) = Client::connect(&server);
    client.send("USER ann");
    assert!(client.send("PASS wrong").starts_with("530"));
    client.send("USER ann");
    assert!(client.send("PASS secret").starts_with("230"));
    assert!(client.send("REIN").starts_with("220"));
    client.send("USER ann");
    assert!(client.send("PASS wrong").starts_with("530"));
    assert!(client.reply().starts_with("421"));
}

#[test]
fn who_has_not_logged_in_goes_when_the_server_ends() {
    let root = public_directory();
    let server = Running::start(root.path(), &["--anonymous"]);
    let (mut stranger, _) = Client::connect(&server);
    assert!(stranger.send("USER ftp").starts_with("331"));
    server.signal(Signal::TERM);
    assert!(stranger.reply().starts_with("421"));
    assert_eq!(stranger.reply(), "");
    let (status, _) = server.ended();
    assert_eq!(status, 0);
}

#[test]
fn without_the_process_that_listens_the_server_ends_with_an_error() {
    let root = public_directory();
    let server = Running::start(root.path(), &["--anonymous"]);
    let (mut client, _) = Client::connect(&server);
    kill(&server, "gh-front");
    assert_eq!(client.reply(), "");
    let begun = Instant::now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(begun.elapsed() < TIME_LIMIT, "it listens");
        std::thread::yield_now();
    }
    let (status, log) = server.ended();
    assert_eq!(status, 1, "the service manager starts it again");
    assert!(log.contains("the process that listens has ended"), "{log}");
}

#[test]
fn a_reload_reaches_the_process_that_listens() {
    let root = public_directory();
    // The account that serves makes the new log.
    fs::set_permissions(root.path(), Permissions::from_mode(0o777)).expect("set");
    let file = root.path().join("gridhaul.toml");
    let log = root.path().join("log");
    let configure = |banner: &str| {
        let text = format!(
            "root = {:?}\nlisten = [\"127.0.0.1:0\"]\nanonymous = true\npenalty-exempt = [\"127.0.0.0/8\"]\nbanner = {banner:?}\nlog-file = {log:?}\n",
            root.path()
        );
        fs::write(&file, text).expect("written");
    };
    configure("one");
    let mut command = crate::program::program();
    let server = Running::of(command.args(["serve", "--config"]).arg(&file));
    assert!(Client::connect(&server).1.contains("one"));
    configure("two");
    let moved = root.path().join("log.1");
    fs::rename(&log, &moved).expect("renamed");
    server.signal(Signal::HUP);
    let begun = Instant::now();
    while !Client::connect(&server).1.contains("two") {
        assert!(begun.elapsed() < TIME_LIMIT, "it greets as before");
        std::thread::yield_now();
    }
    // Its log goes on in the new file.
    let (mut client, _) = Client::connect(&server);
    client.send("QUIT");
    while !fs::read_to_string(&log)
        .unwrap_or_default()
        .contains("session opened")
    {
        assert!(begun.elapsed() < TIME_LIMIT, "nothing is logged");
        std::thread::yield_now();
    }
}

/// The serving process does not read: clients must not wait for it without a reply, nor without a limit.
#[test]
fn clients_are_refused_while_the_serving_process_hangs() {
    /// The socket holds several hundred messages as well.
    const MORE_THAN_WAIT: usize = 1500;
    const WAIT: usize = 500;

    let site = public_directory();
    let logs = tempfile::tempdir().expect("a directory");
    // Not on standard error, which this test does not read.
    let log = logs.path().join("log");
    let flags = [
        "--log-file",
        text(&log),
        "--anonymous",
        "--max-connections",
        "4000",
        "--max-connections-per-address",
        "4000",
    ];
    let server = Running::start(site.path(), &flags);
    // The front process accepts when the serving process tells it to.
    drop(Client::log_in(&server));
    server.signal(Signal::STOP);
    let mut clients = Vec::new();
    let refusal = (0..MORE_THAN_WAIT).find_map(|_| {
        let (mut client, greeting) = Client::connect(&server);
        assert!(greeting.starts_with("220"), "{greeting}");
        assert!(client.send("USER anonymous").starts_with("331"));
        let limit = Duration::from_millis(if clients.len() < WAIT { 1 } else { 5 });
        client.stream.set_read_timeout(Some(limit)).expect("set");
        let reply = client.try_send("PASS x");
        clients.push(client);
        reply
    });
    let refusal = refusal.expect("a reply");
    assert!(refusal.starts_with("421"), "{refusal}");
    assert!(clients.len() >= WAIT, "{}", clients.len());
    server.signal(Signal::CONT);
    for mut client in clients.drain(..5) {
        client
            .stream
            .set_read_timeout(Some(TIME_LIMIT))
            .expect("set");
        client.expect_reply("230");
    }
}
