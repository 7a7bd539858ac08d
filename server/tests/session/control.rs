//! The control channel in the middle of transfers, under strain, and at the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gridhaul_server::config::Seconds;

use crate::client::{Client, send_block, send_end};
use crate::served::Served;

/// A client in the middle of a STOR in stream mode.
fn storing(served: &Served) -> (Client, TcpStream) {
    let mut client = served.anonymous();
    let mut data = client.passive();
    client.expect("STOR file", 150);
    data.write_all(b"some").expect("sent");
    (client, data)
}

#[test]
fn abor_ends_the_transfer_and_not_the_session() {
    let served = Served::new();
    let (mut client, _data) = storing(&served);
    // As telnet clients send it (RFC 959 4.1.3).
    client.send_bytes(b"\xff\xf4\xff\xf2ABOR\r\n");
    let text = client.expect_reply(426);
    assert!(text.contains("the operation was aborted"), "{text}");
    client.expect_reply(226);
    client.expect("NOOP", 200);
    client.put("STOR file", b"whole");
    assert_eq!(served.read("file"), b"whole");
    client.expect("ABOR", 226);
}

#[test]
fn abor_also_ends_what_waits_before_it() {
    let served = Served::new();
    let (mut client, _data) = storing(&served);
    client.send_bytes(b"STOR other\r\nPWD\r\nABOR\r\nNOOP\r\n");
    for code in [426, 426, 257, 226, 200] {
        client.expect_reply(code);
    }
    assert!(!served.path("other").exists());
}

#[test]
fn status_is_told_in_the_middle() {
    let served = Served::new();
    let (mut client, data) = storing(&served);
    client.expect("NOOP", 200);
    let text = client.expect("STAT", 212);
    assert!(text.contains("A transfer is running"), "{text}");
    // What comes behind something that waits has to wait as well.
    client.send_bytes(b"SIZE file\r\nNOOP\r\n");
    drop(data);
    for code in [226, 213, 200] {
        client.expect_reply(code);
    }
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let served = Served::new();
    let mut client = served.anonymous();
    let data = client.passive();
    client.send_bytes(b"STOR file\r\nNOOP\r\n");
    client.expect_reply(150);
    // Another line is no reason to answer the first one.
    client.send_bytes(b"SIZE file\r\n");
    drop(data);
    for code in [226, 200, 213] {
        client.expect_reply(code);
    }
}

#[test]
fn quit_waits_for_the_transfer() {
    let served = Served::new();
    let (mut client, mut data) = storing(&served);
    client.send("QUIT");
    data.write_all(b"thing").expect("sent");
    drop(data);
    client.expect_reply(226);
    client.expect_reply(221);
    client.expect_end();
    assert_eq!(served.read("file"), b"something");
}

#[test]
fn a_client_that_goes_away_takes_its_transfer_with_it() {
    let served = Served::new();
    let (mut client, mut data) = storing(&served);
    while !client.expect("STAT", 212).contains(" 4 bytes so far") {}
    drop(client);
    let mut nothing = [0; 1];
    // The server throws the data connection away: its end, or a reset.
    assert!(matches!(data.read(&mut nothing), Ok(0) | Err(_)));
    assert_eq!(served.read("file"), b"some", "what arrived stays");
}

#[test]
fn sixty_four_commands_may_wait() {
    let served = Served::new();
    let (mut client, data) = storing(&served);
    client.send_bytes(&b"PWD\r\n".repeat(500));
    drop(data);
    client.expect_reply(226);
    for _ in 0..500 {
        client.expect_reply(257);
    }
}

#[test]
fn replies_come_in_the_order_of_the_commands() {
    let served = Served::new();
    served.write("file", "x");
    let mut client = served.anonymous();
    client.send_bytes(b"NOOP\r\nSIZE file\r\nNONSENSE\r\nPWD\r\nSIZE nothing\r\n\r\nNOOP\r\n");
    for code in [200, 213, 500, 257, 550, 500, 200] {
        client.expect_reply(code);
    }
}

#[test]
fn bad_lines_are_answered_and_skipped() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.send_bytes(&[b'x'; 1 << 20]);
    client.send_bytes(b"\r\n");
    assert!(client.expect_reply(500).contains("longer than"));
    client.send_bytes(b"SIZE a\0b\r\n");
    assert!(client.expect_reply(500).contains("NUL"));
    client.expect("NOOP", 200);
}

#[test]
fn markers_come_at_the_pace_that_the_client_sets() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    client.expect("TREV PERF 1", 200);
    client.expect("TREV RESTART 1", 200);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    client.expect_reply(112);
    send_block(&mut data, 0, b"first");
    assert!(
        client
            .expect_reply(112)
            .contains("Stripe Bytes Transferred: 5\r\n")
    );
    assert_eq!(client.expect_reply(111), "111 Range Marker 0-5\r\n");
    send_block(&mut data, 5, b"second");
    send_end(&mut data);
    let mut restart = String::new();
    loop {
        let reply = client.reply();
        match reply.code() {
            112 => {}
            111 => restart.push_str(&reply.text()),
            code => {
                assert_eq!(code, 226);
                break;
            }
        }
    }
    assert_eq!(restart, "Range Marker 5-11", "only what is new");
}

#[test]
fn a_transfer_that_does_not_move_is_ended() {
    let served = Served::with(|settings| settings.stall_timeout = Some(Seconds(1)));
    let (mut client, _data) = storing(&served);
    let text = client.expect_reply(426);
    assert!(text.contains("stalled"), "{text}");
    client.expect("NOOP", 200);
}

#[test]
fn idle_sessions_are_closed_and_transfers_are_not_idle() {
    let served = Served::with(|settings| settings.idle_timeout = Some(Seconds(1)));
    let (mut client, data) = storing(&served);
    let mut idle = served.anonymous();
    idle.expect_reply(421);
    idle.expect_end();
    client.expect("STAT", 212);
    drop(data);
    client.expect_reply(226);
    client.expect_reply(421);
}

#[test]
fn transfers_that_are_too_many_wait_and_are_told_so() {
    let served = Served::with(|settings| settings.max_transfers = Some(1));
    let (mut first, first_data) = storing(&served);
    let mut second = served.anonymous();
    let second_data = second.passive();
    second.send("STOR other");
    assert_eq!(
        second.expect_reply(120),
        "120 Transfer queued; 0 ahead.\r\n"
    );
    drop(first_data);
    first.expect_reply(226);
    second.expect_reply(150);
    drop(second_data);
    second.expect_reply(226);
    // One that gives up leaves no trace.
    let (mut first, first_data) = storing(&served);
    let _data = second.passive();
    second.send_bytes(b"STOR other\r\nABOR\r\n");
    second.expect_reply(426);
    second.expect_reply(226);
    drop(first_data);
    first.expect_reply(226);
    second.put("STOR other", b"x");
}

#[test]
fn connections_that_are_too_many_are_turned_away() {
    let served = Served::with(|settings| settings.max_connections = Some(1));
    let mut first = served.greeted();
    let mut second = Client::connect(served.address());
    assert_eq!(
        second.expect_reply(421),
        "421 Service busy: Connection limit exceeded. Please try again later. Closing control connection.\r\n"
    );
    second.expect_end();
    first.expect("QUIT", 221);
    first.expect_end();
    while served.server().sessions() > 0 {
        std::thread::yield_now();
    }
    served.greeted();
}

#[test]
fn one_address_does_not_get_all_connections() {
    let served = Served::with(|settings| settings.max_connections_per_address = Some(1));
    let _first = served.greeted();
    let text = Client::connect(served.address()).expect_reply(421);
    assert!(text.contains("for your address"), "{text}");
}

#[test]
fn shutting_down_closes_idle_sessions_and_lets_transfers_finish() {
    let mut served = Served::new();
    let mut idle = served.anonymous();
    let (mut client, mut data) = storing(&served);
    let ended = served.begin_shutdown();
    idle.expect_reply(421);
    idle.expect_end();
    data.write_all(b"thing").expect("sent");
    drop(data);
    client.expect_reply(226);
    client.expect_reply(421);
    assert!(served.finish(ended));
    assert_eq!(served.read("file"), b"something");
    assert!(TcpStream::connect_timeout(&served.address(), Duration::from_secs(1)).is_err());
}

#[test]
fn transfers_that_take_too_long_are_cancelled_at_the_end() {
    let mut served = Served::with(|settings| settings.grace = Some(Seconds(0)));
    let (mut client, _data) = storing(&served);
    let ended = served.begin_shutdown();
    let text = client.expect_reply(426);
    assert!(text.contains("shutting down"), "{text}");
    client.expect_reply(421);
    assert!(served.finish(ended));
}

#[test]
fn half_a_mebibyte_of_commands_does_not_overtake_itself() {
    let served = Served::new();
    let mut client = served.anonymous();
    let mut sender = client.second_handle();
    let writer = std::thread::spawn(move || {
        let line = format!("SIZE {}\r\n", "x".repeat(4000));
        for _ in 0..128 {
            sender.write_all(line.as_bytes()).expect("sent");
        }
        sender.write_all(b"NOOP\r\n").expect("sent");
    });
    for _ in 0..128 {
        client.expect_reply(550);
    }
    client.expect_reply(200);
    writer.join().expect("no panic");
}
