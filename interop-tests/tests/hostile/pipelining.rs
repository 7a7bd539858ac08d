//! Commands that are sent ahead of the replies.
//!
//! `globus-url-copy -pp` keeps a dozen transfers in flight; other clients may send any number. The server executes all
//! commands in order, and throttles a client that sends too many.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gridhaul_interop::raw::{Block, Control, connect_data, read_channel, write_block};
use gridhaul_interop::support::usage::ProcessTree;

use crate::fixture::{Fixture, assert_reply, pattern};

/// The allowed memory growth of the server while a peer floods it, in bytes.
const GROWTH: u64 = 24 << 20;

#[test]
fn sixty_four_pipelined_commands_are_answered_in_order() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    in_order(&fixture, &mut control, 64);
    fixture.session_works(&mut control);
}

#[test]
fn a_thousand_pipelined_commands_are_answered_in_order() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    in_order(&fixture, &mut control, 1000);
    fixture.session_works(&mut control);
}

/// Sends commands ahead of the replies; each reply identifies its command.
fn in_order(fixture: &Fixture, control: &mut Control, count: usize) {
    for size in 0..10 {
        fixture.file(&format!("f{size}"), &vec![b'x'; size]);
    }
    let line = |index: usize| format!("SIZE {}\r\n", fixture.path(&format!("f{}", index % 10)));
    let lines: String = (0..count).map(line).collect();
    control.send(lines.as_bytes()).unwrap();
    for index in 0..count {
        let reply = control.reply().unwrap();
        assert_eq!(reply.text(), format!("213 {}", index % 10), "reply {index}");
    }
}

#[test]
fn a_client_that_reads_no_replies_is_throttled_and_loses_none() {
    const COMMANDS: usize = 20_000;
    let fixture = Fixture::ours(&[]);
    let server = ProcessTree::of(fixture.server.pid());
    let mut control = fixture.session();
    let before = server.peak_memory();
    let mut writer = control.socket().try_clone().unwrap();
    let (done, written) = mpsc::channel();
    let flood = thread::spawn(move || {
        let result = writer.write_all("FEAT\r\n".repeat(COMMANDS).as_bytes());
        // The receiver has been dropped when the test has failed.
        let _ = done.send(());
        result
    });
    // The replies, about 12 MB, exceed socket buffers: either the writer is blocked by now, or the
    // server has read all lines and must not hold all replies in memory.
    let _ = written.recv_timeout(Duration::from_secs(2));
    for index in 0..COMMANDS {
        let reply = control.reply().unwrap();
        assert_eq!(reply.code, 211, "reply {index}: {reply}");
    }
    flood.join().unwrap().unwrap();
    assert!(
        server.peak_memory() < before + GROWTH,
        "replies piled up in the server"
    );
    fixture.session_works(&mut control);
}

#[test]
fn sixty_four_pipelined_retrieves() {
    retrieves(64);
}

#[test]
fn two_hundred_pipelined_retrieves() {
    retrieves(200);
}

/// RETRs in MODE E, all sent at once, over one data channel.
fn retrieves(count: usize) {
    let fixture = Fixture::ours(&[]);
    let content = pattern(count);
    for index in 0..count {
        fixture.file(&format!("f{index}"), &content[..index]);
    }
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    let lines: String = (0..count)
        .map(|index| format!("RETR f{index}\r\n"))
        .collect();
    control.send(lines.as_bytes()).unwrap();
    let mut channel = listener.accept().unwrap();
    for index in 0..count {
        let blocks = read_channel(&mut channel).unwrap();
        let file: Vec<u8> = blocks.into_iter().flat_map(|block| block.payload).collect();
        assert_eq!(file, content[..index], "file {index}");
        let codes = control.dialogue().unwrap().codes();
        assert_eq!(
            codes,
            [if index == 0 { 150 } else { 125 }, 226],
            "file {index}"
        );
    }
    fixture.session_works(&mut control);
}

#[test]
fn sixty_four_pipelined_stores() {
    stores(64);
}

#[test]
fn two_hundred_pipelined_stores() {
    stores(200);
}

/// STORs in MODE E, all sent at once, over one data channel.
fn stores(count: usize) {
    let fixture = Fixture::ours(&[]);
    let content = pattern(count);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    let lines: String = (0..count)
        .map(|index| format!("STOR f{index}\r\n"))
        .collect();
    control.send(lines.as_bytes()).unwrap();
    for index in 0..count {
        let begun = control.reply().unwrap();
        assert_eq!(
            begun.code,
            if index == 0 { 150 } else { 125 },
            "file {index}: {begun}"
        );
        send_file(&mut channel, &content[..index]);
        assert_eq!(control.dialogue().unwrap().last.code, 226, "file {index}");
    }
    for index in 0..count {
        assert_eq!(fixture.content(&format!("f{index}")), content[..index]);
    }
    fixture.session_works(&mut control);
}

fn send_file(channel: &mut TcpStream, content: &[u8]) {
    if !content.is_empty() {
        write_block(channel, 0, content).unwrap();
    }
    channel.write_all(&Block::end_of_file(1).bytes()).unwrap();
}

/// A peer that waits for the missing file must not get the blocks of the next one: the channel is closed,
/// later pipelined transfers are refused, and the session continues.
#[test]
fn a_missing_file_among_pipelined_ones_is_not_filled_by_the_next() {
    let fixture = Fixture::ours(&[]);
    fixture.file("a", b"first");
    fixture.file("c", b"third");
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    control
        .send(b"RETR a\r\nRETR b\r\nRETR c\r\nSIZE c\r\n")
        .unwrap();
    let mut channel = listener.accept().unwrap();
    assert_eq!(read_channel(&mut channel).unwrap()[0].payload, b"first");
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    let missing = control.dialogue().unwrap().last;
    assert_reply(&missing, &[500, 550], &["No such file or directory"]);
    let behind = control.dialogue().unwrap().last;
    assert_reply(&behind, &[425, 503], &["PORT"]);
    assert_eq!(control.reply().unwrap().text(), "213 5");
    fixture.session_works(&mut control);
}
