//! What the standards of FTP ask for, and ordinary clients depend on.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use gridhaul_server::config::Seconds;
use rustix::net::RecvFlags;

use crate::client::Client;
use crate::served::Served;

/// Stores a file with `STOU`, and returns the name that the server gave it.
fn store_unique(client: &mut Client, line: &str, content: &[u8]) -> String {
    let mut data = client.passive();
    let reply = client.expect(line, 150);
    data.write_all(content).expect("sent");
    drop(data);
    client.expect_reply(226);
    let name = reply.strip_prefix("150 FILE: ");
    name.expect("RFC 1123 4.1.2.9").trim_end().to_owned()
}

#[test]
fn stou_stores_under_names_of_its_own_and_tells_them() {
    let served = Served::new();
    served.directory("d");
    served.write("d/name", "old");
    let mut client = served.anonymous();
    client.expect("CWD d", 250);
    let one = store_unique(&mut client, "STOU", b"one");
    let two = store_unique(&mut client, "STOU", b"two");
    let three = store_unique(&mut client, "STOU name", b"three");
    assert!(one != two && one.starts_with("/d/upload."), "{one} {two}");
    assert!(three.starts_with("/d/name."), "{three}");
    for (path, content) in [(one, "one"), (two, "two"), (three, "three")] {
        assert_eq!(client.get(&format!("RETR {path}")), content.as_bytes());
    }
    assert_eq!(served.read("d/name"), b"old");
    client.expect("STOU x", 425);
    client.expect("REST 5", 350);
    let _data = client.passive();
    client.expect("STOU", 554);
    assert_eq!(
        std::fs::read_dir(served.path("d")).expect("listed").count(),
        4
    );
}

#[test]
fn stou_is_for_users_who_may_write() {
    let served = Served::with(|settings| settings.anonymous_write = None);
    let mut client = served.anonymous();
    let _data = client.passive();
    let text = client.expect("STOU", 550);
    assert!(
        text.contains("Permission denied: this server gives this user read access only"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_dir(served.path("")).expect("listed").count(),
        0
    );
}

#[test]
fn rein_takes_the_session_back_to_its_beginning() {
    let served = Served::new();
    served.directory("d");
    let mut client = served.anonymous();
    client.expect("CWD d", 250);
    client.expect("MODE E", 200);
    client.expect("OPTS MLST Size;", 200);
    client.expect("REST 5", 350);
    let reply = client.expect("PASV", 227);
    let address = reply
        .rsplit(['(', ')'])
        .nth(1)
        .expect("an address")
        .to_owned();
    let numbers: Vec<u16> = address
        .split(',')
        .map(|part| part.parse().expect("a number"))
        .collect();
    client.expect("REIN", 220);
    // The port is closed, and no user is logged in.
    let port = numbers[4] << 8 | numbers[5];
    TcpStream::connect(("127.0.0.1", port)).expect_err("closed");
    client.expect("PWD", 530);
    client.expect("PASS x@", 503);
    client.expect("USER ftp", 331);
    client.expect("REIN", 220);
    client.expect("PASS x@", 503);
    client.expect("USER ftp", 331);
    client.expect("PASS x@", 230);
    assert_eq!(client.expect("SITE WHOAMI", 200), "200 ftp\r\n");
    assert_eq!(
        client.expect("PWD", 257),
        "257 \"/\" is current directory.\r\n"
    );
    assert!(client.expect("FEAT", 211).contains("Type*;"));
    // TYPE A, as at the beginning.
    client.expect("SIZE d", 504);
    client.expect("RETR d", 425);
    client.expect("TYPE I", 200);
    client.put("STOR file", b"whole");
    assert_eq!(served.read("file"), b"whole", "REST is forgotten");
}

#[test]
fn rein_does_not_give_strangers_more_time() {
    let served = Served::with(|settings| settings.login_timeout = Some(Seconds(1)));
    let mut client = served.greeted();
    let begun = Instant::now();
    // Whether the server waits for a command at that moment or not, the limit comes.
    loop {
        client.send("REIN");
        match client.reply().code() {
            220 => assert!(
                begun.elapsed() < Duration::from_secs(15),
                "REIN begins the time anew"
            ),
            code => break assert_eq!(code, 421),
        }
    }
}

#[test]
fn acct_is_superfluous() {
    let served = Served::new();
    let mut client = served.greeted();
    client.expect("USER anonymous", 331);
    client.expect("ACCT budget", 202);
    client.expect("PASS x@", 230);
    client.expect("ACCT budget", 202);
    client.expect("ACCT", 202);
}

#[test]
fn sizes_and_restarts_count_bytes_of_files_and_so_not_in_type_a() {
    let served = Served::new();
    served.write("text", "one\ntwo\n");
    let mut client = served.anonymous();
    client.expect("TYPE A", 200);
    client.expect("SIZE text", 504);
    client.expect("REST 4", 350);
    let _data = client.passive();
    client.expect("RETR text", 504);
    client.expect("REST 4", 350);
    let _data = client.passive();
    client.expect("STOR text", 504);
    // It was for one command, and listings begin at their beginning.
    assert_eq!(client.get("RETR text"), b"one\r\ntwo\r\n");
    client.expect("REST 4", 350);
    assert_eq!(client.get("NLST"), b"text\r\n");
    // Blocks carry the bytes of the file, with any type.
    client.expect("MODE E", 200);
    assert_eq!(client.expect("SIZE text", 213), "213 8\r\n");
}

#[test]
fn a_restart_behind_the_end_is_refused_and_one_at_the_end_is_not() {
    let served = Served::new();
    served.write("file", "0123456789");
    let mut client = served.anonymous();
    client.expect("REST 10", 350);
    assert_eq!(client.get("RETR file"), b"");
    client.expect("REST 11", 350);
    let _data = client.passive();
    let text = client.expect("RETR file", 554);
    assert!(text.contains("10 bytes"), "{text}");
    assert_eq!(client.get("RETR file"), b"0123456789");
    client.expect("MODE E", 200);
    client.expect("REST 0-5,8-12", 350);
    let _listener = client.active();
    client.expect("RETR file", 554);
}

/// Whether the client closes before or after the server has ended the stream, it has everything.
#[test]
fn a_client_that_closes_early_with_everything_is_told_so_every_time() {
    const RUNS: usize = 200;
    let served = Served::new();
    let content = [7; 10_000];
    served.write("file", content);
    let mut client = served.anonymous();
    for run in 0..RUNS {
        let data = client.passive();
        client.expect("RETR file", 150);
        // Everything is there and nothing was taken, so that to close is to reset.
        let mut seen = [0; 10_000];
        while rustix::net::recv(&data, &mut seen, RecvFlags::PEEK)
            .expect("received")
            .1
            < seen.len()
        {}
        drop(data);
        assert_eq!(client.reply().code(), 226, "run {run}");
    }
}

#[test]
fn the_directory_that_took_the_roots_place_is_served_from_the_next_login_on() {
    let served = Served::new();
    served.write("file", "old");
    let mut before = served.anonymous();
    served.replace_root();
    served.write("file", "new");
    let mut after = served.anonymous();
    assert_eq!(after.get("RETR file"), b"new");
    after.put("STOR made", b"x");
    assert_eq!(served.read("made"), b"x");
    // What a session has begun with stays.
    assert_eq!(before.get("RETR file"), b"old");
}

#[test]
fn without_a_root_nobody_is_let_in() {
    let served = Served::new();
    drop(served.anonymous());
    let away = served.remove_root();
    let mut client = served.greeted();
    client.expect("USER anonymous", 331);
    let text = client.expect("PASS x@", 530);
    assert!(text.contains("No such file or directory"), "{text}");
    std::fs::rename(away, served.path("")).expect("renamed");
    served.anonymous();
}
