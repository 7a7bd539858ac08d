//! Clients while two versions run.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::processes;
use crate::program::has_root;

#[test]
fn connections_are_never_refused_and_the_new_version_answers_them() {
    // The test does not read the log, and each connection is a line at the default level.
    let site = Site::new("banner = 'version one'\nlog-level = 'warn'\n");
    let mut server = site.start();
    greeted(&server, "version one");
    site.configure("banner = 'version two'\nlog-level = 'warn'\n");
    let is_over = AtomicBool::new(false);
    let new = thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let (mut old, mut new) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let (_, greeting) = Client::connect(&server);
                match greeting.contains("version two") {
                    true => new += 1,
                    false => {
                        assert!(greeting.contains("version one"), "{greeting}");
                        old += 1;
                    }
                }
            }
            (old, new)
        });
        let new = site.upgrade();
        greeted(&server, "version two");
        is_over.store(true, Ordering::Relaxed);
        let (old_ones, new_ones) = connecting.join().expect("never refused");
        assert!(old_ones > 0 && new_ones > 0, "{old_ones}, {new_ones}");
        new
    });
    assert_eq!(server.wait(), 0);
    greeted(&server, "version two");
    new.signal(Signal::TERM);
    new.gone();
    assert!(
        TcpStream::connect(server.address).is_err(),
        "no one listens"
    );
}

#[test]
fn versions_can_follow_each_other_at_once() {
    let site = Site::new("banner = 'version one'\n");
    let mut server = site.start();
    let mut first = Client::log_in(&server);
    let (first_data, first_begun) = begin_to_receive(&mut first);
    site.configure("banner = 'version two'\n");
    let two = site.upgrade();
    greeted(&server, "version two");
    let mut second = Client::log_in(&server);
    let (second_data, second_begun) = begin_to_receive(&mut second);
    site.configure("banner = 'version three'\n");
    let three = site.upgrade();
    greeted(&server, "version three");
    receive_rest(first_data, first_begun);
    receive_rest(second_data, second_begun);
    first.expect_reply("226");
    second.expect_reply("226");
    first.expect("QUIT", "221");
    second.expect("QUIT", "221");
    assert_eq!(server.wait(), 0);
    two.gone();
    greeted(&server, "version three");
    three.signal(Signal::TERM);
    three.gone();
}

#[test]
fn the_new_version_has_the_interfaces_of_the_old_one() {
    let site = Site::new("metrics-listen = '127.0.0.1:0'\n");
    let mut server = site.start();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut server.stdout, &mut line).expect("a line");
    let metrics = line.trim_end().strip_prefix("Metrics at http://");
    let metrics = metrics.and_then(|rest| rest.strip_suffix("/metrics"));
    let metrics = metrics.expect("an address").to_owned();
    let client = Client::log_in(&server);
    let new = site.upgrade();
    // The session of the old version is not among those of the new one, and both answers come from the new one.
    let status = program()
        .args(["status", "--json", "--socket"])
        .arg(site.socket())
        .output()
        .expect("started");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(status["server"]["pid"], new.0.as_raw_nonzero().get());
    assert_eq!(status["counts"]["sessions"], 0);
    let mut stream = TcpStream::connect(metrics).expect("connected");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("UTF-8");
    assert!(page.contains("gridhaul_sessions"), "{page}");
    drop(client);
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_server_that_was_drained_can_be_upgraded() {
    // The new version opens the port again.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = free.local_addr().expect("bound");
    drop(free);
    let site = Site::new("");
    let file = fs::read_to_string(site.file()).expect("written");
    let file = file.replace("127.0.0.1:0", &address.to_string());
    fs::write(site.file(), file).expect("written");
    let mut server = site.start();
    let mut client = Client::log_in(&server);
    let (data, begun) = begin_to_receive(&mut client);
    let drained = program()
        .args(["drain", "--socket"])
        .arg(site.socket())
        .output();
    assert!(drained.expect("started").status.success());
    let reached = || match TcpStream::connect(address) {
        Ok(_) => "connected",
        Err(_) => "refused",
    };
    wait_for("refused", reached, |reached| *reached == "refused");
    let _new = site.upgrade();
    Client::log_in(&server).expect("QUIT", "221");
    receive_rest(data, begun);
    client.expect_reply("226");
    client.expect("QUIT", "221");
    assert_eq!(server.wait(), 0);
}

#[test]
fn the_new_version_has_a_monitor_of_its_own() {
    if !has_root() {
        return;
    }
    let pki = processes::site();
    let file = |name: &str| text(&pki.path().join(name)).to_owned();
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let site = Site::new(&format!("cert = {cert:?}\nkey = {key:?}\n"));
    let mut server = site.start();
    let old = processes::child(&server, "gh-monitor");
    let mut client = Client::log_in(&server);
    let (data, begun) = begin_to_receive(&mut client);
    let new = site.upgrade();
    let number = new.0.as_raw_nonzero().get().unsigned_abs();
    let children = processes::children(number);
    let found = children.iter().find(|(_, name)| name == "gh-monitor");
    let found = found.unwrap_or_else(|| panic!("{children:?}")).0;
    assert_ne!(found, old);
    // It reads files of root for the new version.
    new.signal(Signal::HUP);
    server.log_until("reloaded");
    receive_rest(data, begun);
    client.expect_reply("226");
    client.expect("QUIT", "221");
    assert_eq!(server.wait(), 0);
    new.signal(Signal::TERM);
    new.gone();
}

#[test]
fn a_signal_orders_an_upgrade_too() {
    let site = Site::new("banner = 'version one'\n");
    let mut server = site.start();
    site.configure("banner = 'version two'\n");
    server.signal(Signal::USR2);
    let log = server.log_until("a new version serves");
    let process = log.rsplit("process=").next().expect("its number");
    let process: String = process.chars().take_while(char::is_ascii_digit).collect();
    let process = process.parse().ok().and_then(Pid::from_raw);
    let _new = Successor(process.expect("a number"));
    greeted(&server, "version two");
    assert_eq!(server.wait(), 0);
}
