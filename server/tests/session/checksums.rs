//! `CKSM`, and checksums that clients announce.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use crate::client::{send_block, send_end};
use crate::metrics::scrape;
use crate::served::Served;
use gridhaul_skip::skipped;

#[test]
fn checksums_are_of_files_and_of_parts() {
    let served = Served::new();
    served.write("file", "hello");
    let mut client = served.anonymous();
    assert_eq!(
        client.expect("CKSM MD5 0 -1 file", 213),
        "213 5d41402abc4b2a76b9719d911017c592\r\n"
    );
    assert_eq!(
        client.expect("CKSM adler32 0 -1 file", 213),
        "213 062c0215\r\n"
    );
    assert_eq!(
        client.expect("CKSM ADLER32 1 2 file", 213),
        "213 013800d2\r\n"
    );
    assert_eq!(
        client.expect("CKSM ADLER32 9 -1 file", 213),
        "213 00000001\r\n"
    );
    let text = client.expect("CKSM SHA224 0 -1 file", 500);
    assert!(
        text.starts_with("500 Unknown checksum algorithm requested."),
        "{text}"
    );
    let text = client.expect("CKSM MD5 0 -1 nothing", 550);
    assert!(
        text.contains("System error in open: No such file or directory"),
        "{text}"
    );
}

#[test]
fn an_announced_checksum_must_be_that_of_the_file() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("SCKS MD5 5d41402abc4b2a76b9719d911017c592", 200);
    client.put("STOR file", b"hello");
    client.expect("SCKS MD5 d41d8cd98f00b204e9800998ecf8427e", 200);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    data.write_all(b"hello").expect("sent");
    drop(data);
    assert_eq!(
        client.expect_reply(550),
        "550-GlobusError: v=1 c=INCORRECT_CHECKSUM\r\n\
         550-GridFTP-Computed-Checksum: 5d41402abc4b2a76b9719d911017c592\r\n\
         550-GridFTP-Expected-Checksum: d41d8cd98f00b204e9800998ecf8427e\r\n\
         550 End.\r\n"
    );
    client.put("STOR file", b"hello again");
    client.expect("SCKS SHA224 00", 500);
}

#[test]
fn a_checksum_is_aborted() {
    let served = Served::new();
    let file = File::create(served.path("file")).expect("made");
    // A sparse terabyte: its checksum would take hours.
    file.set_len(1 << 40).expect("sparse files");
    let mut client = served.anonymous();
    client.send_bytes(b"CKSM SHA512 0 -1 file\r\n");
    client.send_bytes(b"ABOR\r\n");
    client.expect_reply(426);
    client.expect_reply(226);
    client.expect("NOOP", 200);
}

/// One client's computation would keep others from their turn for hours; none of them has to wait to give up.
#[test]
fn a_checksum_that_waits_for_its_turn_is_aborted_and_others_follow() {
    // One checksum at a time.
    let served = Served::with(|settings| settings.file_threads = Some(2));
    let file = File::create(served.path("large")).expect("made");
    file.set_len(1 << 40).expect("sparse files");
    served.write("file", "hello");
    let mut first = served.anonymous();
    first.expect("OPTS CKSM Markers=1;", 200);
    first.expect("CKSM SHA512 0 -1 large", 113);
    let mut second = served.anonymous();
    second.send("CKSM MD5 0 -1 file");
    second.send("ABOR");
    second.expect_reply(426);
    second.expect_reply(226);
    // A client that is gone is as good as one that gives up.
    drop(first);
    second.expect("CKSM MD5 0 -1 file", 213);
}

#[test]
fn a_large_file_without_content_costs_no_more_than_a_small_one() {
    let served = Served::new();
    let file = File::create(served.path("file")).expect("made");
    file.set_len(15 << 40).expect("sparse files");
    let mut client = served.anonymous();
    for algorithm in ["ADLER32", "CRC32", "CRC32C"] {
        client.expect(&format!("CKSM {algorithm} 0 -1 file"), 213);
    }
}

#[test]
fn a_client_hears_how_far_a_checksum_is() {
    let served = Served::new();
    let file = File::create(served.path("file")).expect("made");
    file.set_len(1 << 40).expect("sparse files");
    let mut client = served.anonymous();
    client.expect("OPTS CKSM Markers=1;", 200);
    let first = client.expect("CKSM SHA512 0 -1 file", 113);
    let second = client.expect_reply(113);
    let bytes = |marker: &str| -> u64 {
        let line = marker
            .lines()
            .find_map(|line| line.strip_prefix(" Bytes Processed: "));
        line.expect("a number of bytes").parse().expect("a number")
    };
    assert!(bytes(&first) < bytes(&second), "{first} {second}");
    client.send("ABOR");
    while client.reply().code() == 113 {}
    client.expect_reply(226);
}

#[test]
fn a_checksum_after_a_put_is_that_of_the_file_whatever_happens_to_it() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.put("STOR file", b"Wikipedia");
    let known = "213 11e60398\r\n";
    assert_eq!(client.expect("CKSM ADLER32 0 -1 file", 213), known);
    client.expect("MFMT 20200101000000 file", 213);
    client.expect("RNFR file", 350);
    client.expect("RNTO other", 250);
    assert_eq!(client.expect("CKSM ADLER32 0 -1 other", 213), known);
    let file = OpenOptions::new().write(true).open(served.path("other"));
    file.expect("there").write_all_at(b"w", 0).expect("written");
    let changed = client.expect("CKSM ADLER32 0 -1 other", 213);
    assert_eq!(changed, "213 130603b8\r\n");
    client.put("STOR other", b"Wikipedia");
    assert_eq!(client.expect("CKSM ADLER32 0 -1 other", 213), known);
    client.put("ESTO A 0 other", b"w");
    assert_eq!(client.expect("CKSM ADLER32 0 -1 other", 213), changed);
    client.put("APPE other", b"!");
    assert_ne!(client.expect("CKSM ADLER32 0 -1 other", 213), changed);
}

#[test]
fn a_file_that_clients_rename_is_not_read_for_its_checksum() {
    let served = Served::with(|settings| {
        settings.arrival_checksums = Some("ADLER32".parse().expect("a name"));
        settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
    });
    let bytes_read = || {
        let name = "gridhaul_checksum_bytes_total{algorithm=\"ADLER32\"}";
        scrape(&served).get(name).copied().unwrap_or(0.0)
    };
    let mut client = served.anonymous();
    client.put("STOR file.part", b"Wikipedia");
    let before = bytes_read();
    client.expect("RNFR file.part", 350);
    client.expect("RNTO file", 250);
    client.expect("SITE CHMOD 640 file", 250);
    client.expect("MFMT 20200101000000 file", 213);
    client.expect("RNFR file", 350);
    client.expect("RNTO other", 250);
    let known = client.expect("CKSM ADLER32 0 -1 other", 213);
    assert_eq!(known, "213 11e60398\r\n");
    assert_eq!(bytes_read(), before);
    // Behind our back, with the old time.
    let file = OpenOptions::new().write(true).open(served.path("other"));
    let file = file.expect("there");
    let modified = file.metadata().expect("facts").modified().expect("a time");
    file.write_all_at(b"w", 0).expect("written");
    file.set_modified(modified).expect("set");
    client.expect("RNFR other", 350);
    client.expect("RNTO file", 250);
    let changed = client.expect("CKSM ADLER32 0 -1 file", 213);
    assert_eq!(changed, "213 130603b8\r\n");
    assert_eq!(bytes_read(), before + 9.0);
}

#[test]
fn an_announced_checksum_is_that_of_blocks_in_any_order() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    for (checksum, code) in [("11e60398", 226), ("11e60399", 550)] {
        client.expect(&format!("SCKS ADLER32 {checksum}"), 200);
        let mut data = client.passive();
        client.send("STOR file");
        client.expect_reply(150);
        send_block(&mut data, 4, b"pedia");
        send_block(&mut data, 0, b"Wiki");
        send_end(&mut data);
        let mut reply = client.reply();
        while reply.is_preliminary() {
            reply = client.reply();
        }
        assert_eq!(reply.code(), code, "{reply:?}");
    }
}

#[test]
fn files_carry_their_checksums_to_the_next_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, key) = (directory.path().join("root"), directory.path().join("key"));
    std::fs::create_dir(&root).expect("made");
    let secret = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&key);
    secret.expect("made").write_all(&[7; 32]).expect("written");
    let carries = rustix::fs::setxattr(&root, "user.x", b"", rustix::fs::XattrFlags::empty());
    let serve = || {
        Served::with(|settings| {
            settings.root = Some(root.clone());
            settings.checksum_key = Some(key.clone());
            settings.arrival_checksums = Some("ADLER32".parse().expect("a name"));
            settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
        })
    };
    let count = |served: &Served, source| {
        let name = format!("gridhaul_checksums_total{{algorithm=\"ADLER32\",source=\"{source}\"}}");
        scrape(served).get(&name).copied().unwrap_or(0.0)
    };
    let ask = |served: &Served, sum: &str| {
        let reply = served.anonymous().expect("CKSM ADLER32 0 -1 file", 213);
        assert_eq!(reply, format!("213 {sum}\r\n"));
    };

    let served = serve();
    served.anonymous().put("STOR file", b"Wikipedia");
    ask(&served, "11e60398");
    assert_eq!(
        (count(&served, "arrival"), count(&served, "memory")),
        (1.0, 1.0)
    );
    drop(served);

    let served = serve();
    ask(&served, "11e60398");
    match carries {
        Ok(()) => assert_eq!(count(&served, "attribute"), 1.0),
        Err(error) => skipped(&format!("no extended attributes here: {error}")),
    }
    let file = OpenOptions::new().write(true).open(root.join("file"));
    file.expect("there").write_all_at(b"w", 0).expect("written");
    ask(&served, "130603b8");
    assert!(count(&served, "content") >= 1.0);
    let read = "gridhaul_checksum_bytes_total{algorithm=\"ADLER32\"}";
    assert!(scrape(&served)[read] >= 9.0);
}
