//! Commands during a transfer, and control channels that are lost during one.

use std::io::Write;
use std::net::TcpStream;

use gridhaul_interop::raw::{
    Block, Control, Reply, connect_data, get_blocks, put_stream, reset, write_block,
};
use gridhaul_interop::support::usage::{ProcessTree, Usage};

use crate::fixture::{DATA_TIMEOUT, Fixture, assert_reply, pattern, wait_until};

/// A RETR in stream mode whose data is not read.
fn sending(fixture: &Fixture) -> (Control, TcpStream) {
    fixture.large_file("large");
    let mut control = fixture.session();
    let channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    (control, channel)
}

/// A RETR in MODE E whose data is not read.
fn sending_blocks(fixture: &Fixture) -> (Control, TcpStream) {
    fixture.large_file("large");
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    control.must("RETR large", 150).unwrap();
    (control, listener.accept().unwrap())
}

/// A STOR in stream mode that has written 1000 bytes and waits for more.
fn storing(fixture: &Fixture) -> (Control, TcpStream) {
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    channel.write_all(&pattern(1000)).unwrap();
    wait_until("the bytes are in the file", || {
        fixture.content("up").len() == 1000
    });
    (control, channel)
}

/// A STOR in MODE E that has written 1000 bytes and waits for more.
fn storing_blocks(fixture: &Fixture) -> (Control, TcpStream) {
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    write_block(&mut channel, 0, &pattern(1000)).unwrap();
    wait_until("the bytes are in the file", || {
        fixture.content("up").len() == 1000
    });
    (control, channel)
}

/// RFC 959 5.4: 426 for the transfer, 226 for ABOR; and the session continues.
#[track_caller]
fn aborts(fixture: &Fixture, (mut control, channel): (Control, TcpStream)) {
    control.send_line("ABOR").unwrap();
    let transfer = control.dialogue().unwrap().last;
    assert_reply(&transfer, &[426], &["abort"]);
    assert_reply(&control.reply().unwrap(), &[225, 226], &["abort"]);
    closed(channel);
    fixture.session_works(&mut control);
    assert_eq!(
        get_blocks(&mut control, "hello.txt", 2)
            .unwrap()
            .dialogue
            .last
            .code,
        226
    );
}

/// Checks that the data connection ends, with FIN or RST.
#[track_caller]
fn closed(mut channel: TcpStream) {
    let end = std::io::copy(&mut channel, &mut std::io::sink());
    let open = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!open, "the data connection stays open");
}

#[test]
fn abor_while_a_stream_is_sent() {
    let fixture = Fixture::ours(&[]);
    aborts(&fixture, sending(&fixture));
}

#[test]
fn abor_while_blocks_are_sent() {
    let fixture = Fixture::ours(&[]);
    aborts(&fixture, sending_blocks(&fixture));
}

#[test]
fn abor_while_a_stream_is_received() {
    let fixture = Fixture::ours(&[]);
    aborts(&fixture, storing(&fixture));
    assert_eq!(
        fixture.content("up"),
        pattern(1000),
        "received data was lost"
    );
}

#[test]
fn abor_while_blocks_are_received() {
    let fixture = Fixture::ours(&[]);
    aborts(&fixture, storing_blocks(&fixture));
    assert_eq!(
        fixture.content("up"),
        pattern(1000),
        "received data was lost"
    );
}

#[test]
fn abor_as_telnet_urgent_data() {
    let fixture = Fixture::ours(&[]);
    let (mut control, channel) = sending(&fixture);
    // RFC 959 4.1.3. The command itself is not urgent data; curl and lftp send it this way.
    control.send(b"\xff\xf4").unwrap();
    let urgent = rustix::net::SendFlags::OOB;
    rustix::net::send(control.socket(), b"\xff", urgent).unwrap();
    control.send(b"\xf2").unwrap();
    aborts(&fixture, (control, channel));
}

#[test]
fn abor_while_waiting_for_a_data_connection() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.passive().unwrap();
    control.send_line("RETR hello.txt").unwrap();
    control.send_line("ABOR").unwrap();
    assert_reply(&control.dialogue().unwrap().last, &[425, 426], &["abort"]);
    assert_reply(&control.reply().unwrap(), &[225, 226], &["abort"]);
    fixture.session_works(&mut control);
}

#[test]
fn abor_without_a_transfer_succeeds() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    assert_reply(
        &control.command("ABOR").unwrap(),
        &[225, 226],
        &["abort|no transfer"],
    );
    control.passive().unwrap();
    assert_reply(
        &control.command("ABOR").unwrap(),
        &[225, 226],
        &["abort|no transfer"],
    );
    fixture.session_works(&mut control);
}

#[test]
fn abor_drops_the_transfers_that_are_queued_after_it() {
    let fixture = Fixture::ours(&[]);
    let (mut control, channel) = sending_blocks(&fixture);
    control
        .send(b"RETR hello.txt\r\nRETR hello.txt\r\nABOR\r\n")
        .unwrap();
    // The queued transfers either fail, or start after the abort and find their data channel closed.
    let mut replies: Vec<Reply> = Vec::new();
    while replies.len() < 4 {
        replies.push(control.dialogue().unwrap().last);
    }
    assert_reply(&replies[0], &[426], &["abort"]);
    let aborted = replies
        .iter()
        .filter(|reply| [225, 226].contains(&reply.code))
        .count();
    assert_eq!(aborted, 1, "{replies:?}");
    closed(channel);
    fixture.session_works(&mut control);
}

#[test]
fn quit_waits_for_the_transfer() {
    let fixture = Fixture::ours(&[]);
    let (mut control, mut channel) = sending(&fixture);
    control.send_line("QUIT").unwrap();
    // RFC 959 4.1.1: the connection stays open for the result of the transfer.
    let received = std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(received, 64 << 20);
    let codes: Vec<u16> = control
        .until_closed()
        .unwrap()
        .iter()
        .map(|reply| reply.code)
        .collect();
    assert_eq!(codes, [226, 221]);
    fixture.serves();
}

#[test]
fn quit_waits_for_an_upload() {
    let fixture = Fixture::ours(&[]);
    let (mut control, mut channel) = storing_blocks(&fixture);
    control.send_line("QUIT").unwrap();
    channel.write_all(&Block::end_of_file(1).bytes()).unwrap();
    let replies = control.until_closed().unwrap();
    let codes: Vec<u16> = replies
        .iter()
        .map(|reply| reply.code)
        .filter(|code| *code > 199)
        .collect();
    assert_eq!(codes, [226, 221]);
    assert_eq!(fixture.content("up"), pattern(1000));
    fixture.serves();
}

#[test]
fn stat_answers_during_a_transfer() {
    let fixture = Fixture::ours(&[]);
    let (mut control, mut channel) = sending(&fixture);
    control.send_line("STAT").unwrap();
    // RFC 959 4.1.3: the reply comes during the transfer, whose data is not read.
    let status = control.reply().unwrap();
    assert_reply(&status, &[211, 212, 213], &["transfer|bytes|status"]);
    std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}

#[test]
fn noop_during_a_transfer_is_answered() {
    let fixture = Fixture::ours(&[]);
    let (mut control, mut channel) = sending(&fixture);
    control.send(b"NOOP\r\nNOOP\r\n").unwrap();
    std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    // During the transfer, or after it as with the real server.
    let mut codes: Vec<u16> = (0..3)
        .map(|_| control.dialogue().unwrap().last.code)
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 226]);
    fixture.session_works(&mut control);
}

#[test]
fn commands_after_a_transfer_wait_for_it() {
    let fixture = Fixture::ours(&[]);
    let (mut control, mut channel) = storing(&fixture);
    control
        .send(b"SIZE up\r\nRNFR up\r\nRNTO down\r\nSIZE down\r\n")
        .unwrap();
    channel.write_all(&pattern(500)).unwrap();
    drop(channel);
    let texts: Vec<String> = (0..5)
        .map(|_| control.dialogue().unwrap().last.text())
        .collect();
    assert!(texts[0].starts_with("226 "), "{texts:?}");
    assert_eq!(
        (&*texts[1], &*texts[4]),
        ("213 1500", "213 1500"),
        "{texts:?}"
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_lost_control_channel_leaks_no_resources() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let server = ProcessTree::of(fixture.server.pid());
    // A first run, so that permanent resources exist before the reference measurement.
    let (control, channel) = sending(&fixture);
    drop((control, channel));
    fixture.serves();
    let before = settled(server);
    for lose in [drop_in_order, drop_by_reset] {
        for start in [sending, sending_blocks, storing, storing_blocks] {
            let (control, channel) = start(&fixture);
            lose(control);
            closed(channel);
        }
    }
    wait_until("descriptors and threads are as before", || {
        let now = server.usage();
        now.descriptors <= before.descriptors && now.threads <= before.threads
    });
    fixture.serves();
}

#[test]
fn lost_control_channels_free_their_data_ports() {
    let fixture = Fixture::ours(&[]);
    let server = ProcessTree::of(fixture.server.pid());
    fixture.serves();
    let before = settled(server);
    for _ in 0..50 {
        let mut control = fixture.session();
        control.passive().unwrap();
        control.send_line("RETR hello.txt").unwrap();
    }
    wait_until("descriptors are as before", || {
        server.usage().descriptors <= before.descriptors
    });
    fixture.serves();
}

#[test]
fn received_data_stays_when_the_control_channel_is_lost() {
    let fixture = Fixture::ours(&[]);
    for start in [storing, storing_blocks] {
        let (control, channel) = start(&fixture);
        drop(control);
        closed(channel);
        assert_eq!(fixture.content("up"), pattern(1000));
        put_stream(&mut fixture.session(), "up", b"again").unwrap();
        assert_eq!(fixture.content("up"), b"again");
    }
}

fn drop_in_order(control: Control) {
    drop(control);
}

fn drop_by_reset(control: Control) {
    reset(control.socket().try_clone().unwrap()).unwrap();
    drop(control);
}

/// The usage after all sessions have ended: two equal samples in sequence.
fn settled(server: ProcessTree) -> Usage {
    let mut last = server.usage();
    wait_until("the server is at rest", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = server.usage();
        let settled = now.descriptors == last.descriptors && now.threads == last.threads;
        last = now;
        settled
    });
    last
}

#[test]
fn a_disconnect_during_login_is_harmless() {
    let fixture = Fixture::ours(&[]);
    let server = ProcessTree::of(fixture.server.pid());
    fixture.serves();
    let before = settled(server);
    for bytes in [
        &b""[..],
        b"USER",
        b"USER anonymous\r\n",
        b"USER anonymous\r\nPASS x\r\nFEAT\r\n",
    ] {
        let mut control = Control::connect(fixture.address()).unwrap();
        control.send(bytes).unwrap();
        drop_by_reset(control);
    }
    let mut half = Control::greeted(fixture.address()).unwrap();
    half.half_close().unwrap();
    half.until_closed().unwrap();
    wait_until("descriptors are as before", || {
        server.usage().descriptors <= before.descriptors
    });
    fixture.serves();
}
