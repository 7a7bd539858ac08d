//! Recent refusals and the history in the status for administrators.

use std::io::{BufRead as _, Write as _};
use std::net::TcpStream;

use crate::client::Client;
use crate::program::{Running, public_directory, wait_for};

/// The status until `is_there` holds for it.
fn status(address: &str, is_there: impl Fn(&str) -> bool) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(address).expect("connected");
        let request =
            format!("GET /status.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        std::io::read_to_string(stream).expect("UTF-8")
    };
    wait_for("it is in the status", ask, |status| is_there(status))
}

fn start(root: &std::path::Path) -> (Running, String) {
    let flags = ["--anonymous", "--admin-listen", "127.0.0.1:0"];
    let mut server = Running::start(root, &flags);
    let mut line = String::new();
    server.stdout.read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("Administration at http://");
    let address = address.expect("the contract").to_owned();
    (server, address)
}

#[test]
fn refusals_of_the_front_process_are_in_the_status() {
    let root = public_directory();
    let (server, address) = start(root.path());
    let (mut stranger, _) = Client::connect(&server);
    stranger.send("USER <b>ann</b>");
    assert!(stranger.send("PASS x").starts_with("530"));
    let status = status(&address, |status| status.contains("\"login failed\""));
    for part in [
        "\"user\":\"<b>ann</b>\"",
        "\"peer\":\"127.0.0.1\"",
        "\"event\":\"login failed\"",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
}

#[test]
fn long_names_of_refused_clients_are_cut() {
    let root = public_directory();
    let (server, address) = start(root.path());
    let name = "x".repeat(2000);
    for _ in 0..3 {
        let (mut stranger, _) = Client::connect(&server);
        stranger.send(&format!("USER {name}"));
        assert!(stranger.send("PASS x").starts_with("530"));
    }
    let count = |status: &str| status.matches("\"login failed\"").count();
    let status = status(&address, |status| count(status) == 3);
    assert!(
        status.contains(&format!("{}…", &name[..999])) && !status.contains(&name[..1000]),
        "{status}"
    );
}

#[test]
fn bytes_of_a_transfer_in_progress_are_in_the_history() {
    let root = public_directory();
    let file = std::fs::File::create(root.path().join("f")).expect("created");
    file.set_len(1 << 30).expect("long");
    let (server, address) = start(root.path());
    let mut user = Client::log_in(&server);
    // The client does not read, so the transfer does not end.
    let _data = user.retrieve("f");
    let sent = |status: &str| {
        let values = status.split("\"sent_bytes\":").skip(1);
        let values = values.filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok());
        values.sum::<u64>()
    };
    let status = status(&address, |status| sent(status) > 0);
    assert!(sent(&status) >= 1 << 16, "{status}");
    assert!(!status.contains("\"cpu_seconds\":0.0,"), "{status}");
}
