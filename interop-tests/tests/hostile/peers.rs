//! Peers that stall, send slowly, half-close or reset.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{Block, Control, connect_data, reset, write_block};

use crate::fixture::{DATA_TIMEOUT, Fixture, STALL, assert_reply, pattern, wait_until};

/// The codes and texts of the reply to a stalled transfer.
const STALLED: (&[u16], &[&str]) = (
    &[421, 425, 426, 500],
    &["stall|slow|progress|timed out|timeout"],
);

/// Checks the final reply, within the time limit.
#[track_caller]
fn stalled(control: &mut Control) {
    let begin = Instant::now();
    let dialogue = control.dialogue().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(12),
        "it took {:?}",
        begin.elapsed()
    );
    assert_reply(&dialogue.last, STALLED.0, STALLED.1);
}

#[test]
fn no_peer_connects_to_the_data_port() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let mut control = fixture.session();
    control.passive().unwrap();
    for command in ["RETR hello.txt", "STOR up"] {
        control.passive().unwrap();
        control.send_line(command).unwrap();
        let begin = Instant::now();
        let refused = control.dialogue().unwrap().last;
        assert!(begin.elapsed() < Duration::from_secs(12));
        assert_reply(&refused, &[425, 426, 500], &["connection|connect"]);
    }
    fixture.session_works(&mut control);
}

#[test]
fn no_peer_listens_at_the_data_port() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let mut control = fixture.session();
    for mode in ["MODE S", "MODE E"] {
        control.must(mode, 200).unwrap();
        drop(control.listen().unwrap());
        control.send_line("RETR hello.txt").unwrap();
        let refused = control.dialogue().unwrap().last;
        assert_reply(&refused, &[425, 500], &["Connection refused"]);
    }
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_a_stream_stops() {
    let fixture = Fixture::ours(&STALL);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(100_000);
    channel.write_all(&content).unwrap();
    stalled(&mut control);
    assert_eq!(fixture.content("up"), content, "received data was lost");
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_blocks_stops() {
    let fixture = Fixture::ours(&STALL);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(100_000);
    write_block(&mut channel, 0, &content).unwrap();
    channel
        .write_all(&Block::data(1000, 100_000).bytes())
        .unwrap();
    stalled(&mut control);
    assert_eq!(
        fixture.content("up").get(..100_000),
        Some(&content[..]),
        "received data was lost"
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_receiver_stops() {
    let fixture = Fixture::ours(&STALL);
    fixture.large_file("large");
    let mut control = fixture.session();
    for mode in ["MODE S", "MODE E"] {
        control.must(mode, 200).unwrap();
        let listener = control.listen().unwrap();
        control.must("RETR large", 150).unwrap();
        let _channel = listener.accept().unwrap();
        stalled(&mut control);
    }
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_one_byte_a_second_is_stalled() {
    let fixture = Fixture::ours(&STALL);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let crawl = thread::spawn(move || {
        // Each byte is sent before an idle timer would expire.
        while stopped.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            if channel.write_all(b"x").is_err() {
                return;
            }
        }
    });
    stalled(&mut control);
    drop(stop);
    crawl.join().unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn a_receiver_of_one_byte_a_second_is_stalled() {
    let fixture = Fixture::ours(&STALL);
    fixture.large_file("large");
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let crawl = thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            if channel.read(&mut [0]).is_err() {
                return;
            }
        }
    });
    stalled(&mut control);
    drop(stop);
    crawl.join().unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_a_stream_resets() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(100_000);
    channel.write_all(&content).unwrap();
    // A reset discards data in the kernel's buffers, but not data that the server has received.
    wait_until("the bytes are in the file", || {
        fixture.content("up") == content
    });
    reset(channel).unwrap();
    let refused = control.dialogue().unwrap().last;
    assert_reply(&refused, &[426, 500], &["reset"]);
    assert_eq!(fixture.content("up"), content, "received data was lost");
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_blocks_resets_one_channel_of_two() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let port = control.passive().unwrap();
    let mut first = connect_data(port).unwrap();
    let mut second = connect_data(port).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(200_000);
    write_block(&mut first, 0, &content[..100_000]).unwrap();
    write_block(&mut second, 100_000, &content[100_000..]).unwrap();
    wait_until("the bytes are in the file", || {
        fixture.content("up") == content
    });
    reset(second).unwrap();
    let refused = control.dialogue().unwrap().last;
    assert_reply(&refused, &[426, 500], &["reset"]);
    assert_eq!(fixture.content("up"), content, "received data was lost");
    fixture.session_works(&mut control);
}

#[test]
fn a_receiver_resets() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    fixture.large_file("large");
    let mut control = fixture.session();
    for mode in ["MODE S", "MODE E"] {
        control.must(mode, 200).unwrap();
        let listener = control.listen().unwrap();
        control.must("RETR large", 150).unwrap();
        let mut channel = listener.accept().unwrap();
        channel.read_exact(&mut [0; 1000]).unwrap();
        reset(channel).unwrap();
        let refused = control.dialogue().unwrap().last;
        assert_reply(
            &refused,
            &[426, 500],
            &["reset|Broken pipe|closed the data channel"],
        );
    }
    fixture.session_works(&mut control);
}

#[test]
fn a_receiver_closes_too_early() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    fixture.large_file("large");
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    channel.read_exact(&mut [0; 1000]).unwrap();
    drop(channel);
    let refused = control.dialogue().unwrap().last;
    assert_reply(&refused, &[426, 500], &["reset|Broken pipe|closed"]);
    fixture.session_works(&mut control);
}

#[test]
fn a_receiver_that_closes_its_sending_half_gets_all() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let content = pattern(3_000_000);
    fixture.file("data", &content);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    channel.shutdown(Shutdown::Write).unwrap();
    control.must("RETR data", 150).unwrap();
    let mut received = Vec::new();
    channel.read_to_end(&mut received).unwrap();
    assert_eq!(received, content);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_a_stream_may_half_close() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(300_000);
    channel.write_all(&content).unwrap();
    channel.shutdown(Shutdown::Write).unwrap();
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(fixture.content("up"), content);
    fixture.session_works(&mut control);
}

#[test]
fn a_sender_of_blocks_that_half_closes_in_a_block_is_an_error() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(1000);
    write_block(&mut channel, 0, &content).unwrap();
    channel.write_all(&Block::data(1000, 1000).bytes()).unwrap();
    channel.shutdown(Shutdown::Write).unwrap();
    let refused = control.dialogue().unwrap().last;
    assert_reply(&refused, &[426, 500, 551], &["end|EOD|closed"]);
    assert_eq!(
        fixture.content("up").get(..1000),
        Some(&content[..]),
        "received data was lost"
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_client_that_closes_its_sending_half_gets_its_replies() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.send(b"NOOP\r\nPWD\r\n").unwrap();
    control.half_close().unwrap();
    let codes: Vec<u16> = control
        .until_closed()
        .unwrap()
        .iter()
        .map(|reply| reply.code)
        .collect();
    assert_eq!(codes, [200, 257]);
    fixture.serves();
}

#[test]
fn a_client_that_has_closed_its_sending_half_begins_no_transfer() {
    let fixture = Fixture::ours(&[]);
    let long = fs::File::create(fixture.root().join("long")).unwrap();
    // Its checksum takes longer than the end of the connection.
    long.set_len(1 << 40).unwrap();
    let mut control = fixture.session();
    control.passive().unwrap();
    control.send(b"CKSM MD5 0 -1 long\r\nSTOR up\r\n").unwrap();
    control.half_close().unwrap();
    control.until_closed().unwrap();
    assert!(!fixture.root().join("up").exists());
    fixture.serves();
}
