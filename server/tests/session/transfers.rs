//! Transfers in both modes and both directions.

use std::io::{Read, Write};

use gridhaul_server::config::Seconds;

use crate::client::{receive_blocks, send_block, send_end};
use crate::served::Served;

#[test]
fn streams_go_both_ways() {
    let served = Served::new();
    let mut client = served.anonymous();
    for content in [vec![], vec![7], vec![42; 300_000]] {
        client.put("STOR file", &content);
        assert_eq!(served.read("file"), content);
        assert_eq!(client.get("RETR file"), content);
    }
}

#[test]
fn parts_are_sent_and_received() {
    let served = Served::new();
    served.write("file", "0123456789");
    let mut client = served.anonymous();
    assert_eq!(client.get("ERET P 3 4 file"), b"3456");
    assert_eq!(client.get("ERET P 8 100 file"), b"89");
    assert_eq!(client.get("ERET P 20 1 file"), b"");
    client.put("ESTO A 3 file", b"xyz");
    assert_eq!(served.read("file"), b"012xyz6789");
    client.put("APPE file", b"end");
    assert_eq!(served.read("file"), b"012xyz6789end");
    client.expect("REST 7", 350);
    assert_eq!(client.get("RETR file"), b"789end");
    client.expect("REST 4", 350);
    client.put("STOR file", b"AB");
    assert_eq!(served.read("file"), b"012xAB6789end");
    client.put("STOR file", b"short");
    assert_eq!(served.read("file"), b"short", "REST is for one transfer");
}

#[test]
fn text_is_converted_in_type_a() {
    let served = Served::new();
    served.write("file", "one\ntwo\n");
    let mut client = served.anonymous();
    client.expect("TYPE A", 200);
    assert_eq!(client.get("RETR file"), b"one\r\ntwo\r\n");
    client.put("STOR copy", b"three\r\nfour\r\n");
    assert_eq!(served.read("copy"), b"three\nfour\n");
}

#[test]
fn blocks_are_received_with_markers() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    let mut data = client.passive();
    client.expect("ALLO 10", 200);
    client.send("STOR file");
    client.expect_reply(150);
    let marker = client.expect_reply(112);
    assert!(
        marker.contains(" Stripe Bytes Transferred: 0\r\n Total Stripe Count: 1\r\n"),
        "{marker}"
    );
    send_block(&mut data, 5, b"56789");
    send_block(&mut data, 0, b"01234");
    send_end(&mut data);
    assert!(
        client
            .expect_reply(112)
            .contains(" Stripe Bytes Transferred: 10\r\n")
    );
    assert_eq!(client.expect_reply(111), "111 Range Marker 0-10\r\n");
    assert_eq!(client.expect_reply(226), "226 Transfer Complete.\r\n");
    assert_eq!(served.read("file"), b"0123456789");
}

#[test]
fn files_that_were_sent_ahead_are_stored_in_their_order() {
    const FILES: u8 = 40;

    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    let mut data = client.passive();
    client.send_bytes(b"STOR first\r\n");
    client.expect_reply(150);
    send_end(&mut data);
    for code in [112, 112, 226] {
        client.expect_reply(code);
    }
    // Neither waits for a reply.
    for number in 0..FILES {
        send_block(&mut data, 0, &[number; 100]);
        send_end(&mut data);
    }
    let commands = (0..FILES).map(|number| format!("ALLO 100\r\nSTOR {number}\r\n"));
    client.send_bytes((commands.collect::<String>() + "NOOP\r\n").as_bytes());
    for _ in 0..FILES {
        for code in [200, 125, 112, 112, 111, 226] {
            client.expect_reply(code);
        }
    }
    client.expect_reply(200);
    for number in 0..FILES {
        assert_eq!(served.read(&number.to_string()), [number; 100]);
    }
}

#[test]
fn channels_are_used_again_for_queued_files() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    let mut data = client.passive();
    client.send_bytes(b"STOR one\r\nSTOR two\r\nNOOP\r\n");
    client.expect_reply(150);
    client.expect_reply(112);
    send_block(&mut data, 0, b"1");
    send_end(&mut data);
    for code in [112, 111, 226] {
        client.expect_reply(code);
    }
    assert_eq!(
        client.expect_reply(125),
        "125 Beginning transfer; reusing existing data connection.\r\n"
    );
    client.expect_reply(112);
    send_block(&mut data, 0, b"22");
    send_end(&mut data);
    for code in [112, 111, 226] {
        client.expect_reply(code);
    }
    client.expect_reply(200);
    assert_eq!(
        (served.read("one"), served.read("two")),
        (b"1".to_vec(), b"22".to_vec())
    );
}

#[test]
fn the_server_connects_to_send_blocks_and_listings() {
    let served = Served::new();
    served.write("file", "content");
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    client.expect("OPTS RETR Parallelism=1,1,1;", 200);
    let listener = client.active();
    client.send("RETR file");
    let (mut data, _) = listener.accept().expect("accepted");
    assert_eq!(receive_blocks(&mut data), b"content");
    client.expect_reply(150);
    client.expect_reply(226);
    client.expect("NLST file", 125);
    assert_eq!(receive_blocks(&mut data), b"file\r\n");
    client.expect_reply(226);
    client.expect("MODE S", 200);
    client.expect("RETR file", 425);
}

#[test]
fn a_delayed_address_comes_with_the_transfer() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("OPTS PASV AllowDelayed=1;", 200);
    assert_eq!(client.expect("PASV", 200), "200 Passive delayed.\r\n");
    client.send("STOR file");
    let reply = client.reply();
    assert_eq!(reply.code(), 127);
    let mut data = client.connect_data(&reply);
    client.expect_reply(150);
    data.write_all(b"x").expect("sent");
    drop(data);
    client.expect_reply(226);
    assert_eq!(served.read("file"), b"x");
    client.expect("RETR file", 425);
}

#[test]
fn commands_that_have_no_port_are_refused() {
    let served = Served::new();
    served.write("file", "x");
    let mut client = served.anonymous();
    let text = client.expect("RETR file", 425);
    assert!(text.contains("send PASV"), "{text}");
    client.expect("MODE E", 200);
    let _data = client.passive();
    let text = client.expect("RETR file", 425);
    assert!(text.contains("send PORT"), "{text}");
}

#[test]
fn files_that_cannot_be_opened_are_told_with_the_systems_words() {
    let served = Served::new();
    served.directory("directory");
    let mut client = served.anonymous();
    for (line, words) in [
        ("RETR nothing", "No such file or directory"),
        ("STOR nowhere/file", "No such file or directory"),
        ("RETR directory", "Is a directory"),
        ("STOR directory", "Is a directory"),
    ] {
        let _data = client.passive();
        let text = client.expect(line, 550);
        assert!(text.contains(words), "{line}: {text}");
    }
    client.expect("NOOP", 200);
}

#[test]
fn a_port_where_nobody_listens_is_an_error() {
    let served = Served::new();
    served.write("file", "x");
    let mut client = served.anonymous();
    drop(client.active());
    let text = client.expect("RETR file", 425);
    assert!(text.contains("Connection refused"), "{text}");
}

#[test]
fn nobody_waits_for_ever_for_a_data_connection() {
    let served = Served::with(|settings| settings.data_timeout = Some(Seconds(1)));
    served.write("file", "x");
    let mut client = served.anonymous();
    client.expect("PASV", 227);
    client.expect("RETR file", 150);
    let text = client.expect_reply(425);
    assert!(text.contains("within 1 second"), "{text}");
    client.expect("NOOP", 200);
}

#[test]
fn a_stored_file_gets_the_time_that_was_named() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("SITE STORATTR modify=20200101000000;", 250);
    client.put("STOR file", b"x");
    assert_eq!(client.expect("MDTM file", 213), "213 20200101000000\r\n");
    client.put("STOR file", b"y");
    assert_ne!(client.expect("MDTM file", 213), "213 20200101000000\r\n");
}

#[test]
fn a_transfer_log_has_a_line_for_each_transfer() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("transfers");
    let served = Served::with(|settings| settings.transfer_log = Some(log.clone()));
    let mut client = served.anonymous();
    client.expect("SITE TASKID some-task", 250);
    client.put("STOR file", b"hello");
    client.get("MLSD /");
    let _data = client.passive();
    client.expect("RETR nothing", 550);
    client.expect("QUIT", 221);
    let log = std::fs::read_to_string(log).expect("there");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(
        lines[0].contains(" USER=anonymous FILE=/file BUFFER="),
        "{log}"
    );
    assert!(lines[0].ends_with(
        " NBYTES=5 VOLUME=/ STREAMS=1 STRIPES=1 DEST=[127.0.0.1] TYPE=STOR CODE=226 TASKID=some-task"
    ), "{log}");
    assert!(
        lines[1].contains(" FILE=/ ") && lines[1].contains(" TYPE=MLSD CODE=226 "),
        "{log}"
    );
    assert!(
        lines[2].contains(" NBYTES=0 ") && lines[2].contains(" TYPE=RETR CODE=550 "),
        "{log}"
    );
}

#[test]
fn performance_is_told_while_sending_if_the_client_asks() {
    let served = Served::new();
    served.write("file", "hello");
    let mut client = served.anonymous();
    client.expect("OPTS RETR Markers=1;", 200);
    let mut data = client.passive();
    client.expect("RETR file", 150);
    assert!(
        client
            .expect_reply(112)
            .contains("Stripe Bytes Transferred: 0")
    );
    let mut content = Vec::new();
    data.read_to_end(&mut content).expect("received");
    assert!(
        client
            .expect_reply(112)
            .contains("Stripe Bytes Transferred: 5")
    );
    client.expect_reply(226);
}

#[test]
fn an_announcement_reserves_nothing_for_a_client_that_sends_nothing() {
    use std::os::unix::fs::MetadataExt as _;

    /// Blocks that show whether the file system can reserve any.
    const LITTLE: u64 = 1 << 20;
    let served = Served::new();
    let reserved = || {
        let facts = std::fs::metadata(served.path("file"));
        facts.expect("the file is open").blocks() * 512
    };
    let mut client = served.anonymous();
    for ending in ["ABOR", "QUIT"] {
        client.expect("ALLO 67108864", 200);
        let data = client.passive();
        client.expect("STOR file", 150);
        assert!(reserved() <= LITTLE, "{} bytes", reserved());
        if ending == "ABOR" {
            client.expect("ABOR", 426);
            client.expect_reply(226);
        } else {
            drop(data);
            let text = client.expect_reply(426);
            assert!(text.contains("0 bytes arrived of 67108864"), "{text}");
        }
        assert_eq!(reserved(), 0);
    }
    client.expect("ALLO 1152921504606846976", 200);
    let _data = client.passive();
    let text = client.expect("STOR file", 552);
    assert!(text.contains("No space left on device"), "{text}");
    assert_eq!(reserved(), 0);
}
