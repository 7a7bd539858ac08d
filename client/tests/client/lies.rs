//! Servers that lie, stall, or send names that lead elsewhere.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Kind;

use crate::blocks;
use crate::passive;
use crate::scripted::Scripted;
use crate::site::Site;

/// What the server says about its only file and directory.
#[derive(Clone, Copy)]
struct Lies {
    /// The size that it announces.
    size: usize,
    /// What it sends.
    content: &'static [u8],
    /// Its replies after that. Empty: preliminary replies without end, every 50 ms, as from a slow disk; [`FLOOD`]: the same without a
    /// pause; or [`MARKERS`].
    after: &'static str,
    /// Its reply to `CKSM`.
    checksum: &'static str,
    /// The type that `MLST` has.
    kind: &'static str,
    /// Its reply to `MLSD` of a directory in the first one, in place of an empty listing. An empty one ends the session.
    second: Option<&'static str>,
}

const FLOOD: &str = "flood";

/// Markers that count one byte after the other.
const MARKERS: &str = "markers";

const HONEST: Lies = Lies {
    size: 7,
    content: b"content",
    after: "226 Complete.\r\n",
    checksum: "213 9a0364b9e99bb480dd25e1f0284c8555\r\n",
    kind: "file",
    second: None,
};

/// The URL of the file, at a server that tells `lies`.
fn serve(lies: Lies) -> String {
    let script = move |line: &str, control: &mut TcpStream| {
        // The client may close the connection at any time.
        talk(line, control, lies).unwrap_or(true)
    };
    Scripted::start(Box::new(script)).url("file")
}

/// Says for a while that one byte more is stored, or has moved, several times a second.
fn count_slowly(control: &mut TcpStream) -> std::io::Result<()> {
    for count in 1..60 {
        let stored = format!("111 Range Marker 0-{count}\r\n");
        let moved = format!(
            "112-Perf Marker\r\n Timestamp: 1\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: {count}\r\n Total Stripe Count: 1\r\n112 End.\r\n"
        );
        control.write_all((stored + &moved).as_bytes())?;
        thread::sleep(Duration::from_millis(200));
    }
    control.write_all(b"426 Enough.\r\n")
}

/// Replies to a command about the file or the directory, and says whether it was one.
fn talk(line: &str, control: &mut TcpStream, lies: Lies) -> std::io::Result<bool> {
    let verb = line.split(' ').next().unwrap_or_default();
    let reply = match verb {
        "FEAT" => "211-Features\r\n SIZE\r\n MLST type*;size*;\r\n211 End.\r\n".to_owned(),
        "SIZE" => format!("213 {}\r\n", lies.size),
        "MLST" => format!(
            "250-Facts\r\n Type={};Size={}; /file\r\n250 End.\r\n",
            lies.kind, lies.size
        ),
        "PASV" => passive::listen()?,
        "CKSM" => lies.checksum.to_owned(),
        "MLSD" if line.matches('/').count() > 1 && lies.second.is_some() => {
            match lies.second.unwrap_or_default() {
                "" => return control.shutdown(Shutdown::Both).map(|()| true),
                reply => {
                    // The client has connected already, and sees the end of the connection before the reply.
                    passive::accept()?;
                    reply.to_owned()
                }
            }
        }
        "RETR" | "MLSD" => {
            control.write_all(b"150 Here it comes.\r\n")?;
            let mut channel = passive::accept()?;
            // Directories are not nested for ever.
            if line.matches('/').count() <= 2 {
                channel.write_all(lies.content)?;
            }
            if lies.after == MARKERS {
                return count_slowly(control).map(|()| true);
            }
            if matches!(lies.after, "" | FLOOD) {
                loop {
                    control.write_all(
                        b"112-Perf Marker\r\n Timestamp: 1\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: 7\r\n",
                    )?;
                    control.write_all(b" Total Stripe Count: 1\r\n112 End.\r\n150 Soon.\r\n")?;
                    if lies.after != FLOOD {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
            }
            lies.after.to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// Fetches the file over an old one; returns the error.
fn fetch(site: &Site, lies: Lies, options: &[&str]) -> String {
    fs::write(site.local("old"), "the old one").unwrap();
    let url = serve(lies);
    let error = site.fails(&[&["copy", "--retry", "0"], options, &[&url, "old"]].concat());
    assert_eq!(
        fs::read(site.local("old")).unwrap(),
        b"the old one",
        "{error}"
    );
    error
}

#[test]
fn the_good_file_stays_when_the_server_lies_about_the_new_one() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = serve(HONEST);
    site.must(&["copy", "--checksum", "MD5", &url, "new"]);
    assert_eq!(fs::read(site.local("new")).unwrap(), b"content");
    let checksum = "213 00000000000000000000000000000000\r\n";
    let error = fetch(&site, Lies { checksum, ..HONEST }, &["--checksum", "MD5"]);
    assert!(error.contains("the copy was removed"), "{error}");
    assert!(!site.local(".old.gridhaul-part").exists());
    let checksum = "213 As you wish.\r\n";
    let error = fetch(&site, Lies { checksum, ..HONEST }, &["--checksum", "MD5"]);
    assert!(error.contains("has no meaning there"), "{error}");
    let checksum = "500 No checksums.\r\n";
    let error = fetch(&site, Lies { checksum, ..HONEST }, &["--checksum", "MD5"]);
    assert!(error.contains("source: the server refused CKSM"), "{error}");
    let after = "426 The disk of the source failed.\r\n";
    let error = fetch(&site, Lies { after, ..HONEST }, &[]);
    assert!(error.contains("disk of the source failed"), "{error}");
    let error = fetch(&site, Lies { size: 9, ..HONEST }, &[]);
    assert!(error.contains("has 9 bytes, and 7 were copied"), "{error}");
    let error = fetch(&site, Lies { size: 5, ..HONEST }, &[]);
    assert!(
        error.contains("sends more than the 5 bytes that it has announced"),
        "{error}"
    );
    let part = fs::read(site.local(".old.gridhaul-part"));
    assert_eq!(part.unwrap(), b"conte");
}

#[test]
fn words_without_bytes_do_not_hold_a_transfer() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let silent = Lies {
        after: "",
        size: 100,
        ..HONEST
    };
    let error = fetch(&site, silent, &["--stall-timeout", "2"]);
    assert!(error.contains("no byte has moved for 2 s"), "{error}");
    // All bytes are there, and the server says that it works.
    let started = Instant::now();
    let works = Lies {
        after: "",
        ..HONEST
    };
    let error = fetch(&site, works, &["--stall-timeout", "1"]);
    assert!(error.contains("no byte has moved for 1 s"), "{error}");
    // Four time limits, with time for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(40));
}

#[test]
fn markers_of_a_source_do_not_hold_a_transfer() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let counts = Lies {
        after: MARKERS,
        size: 100,
        ..HONEST
    };
    let error = fetch(&site, counts, &["--stall-timeout", "2"]);
    assert!(error.contains("no byte has moved for 2 s"), "{error}");
}

#[test]
fn markers_of_a_destination_that_reads_nothing_do_not_hold_a_transfer() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let large = fs::File::create(site.local("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    let error = count_at_destination(&site, "large");
    assert!(error.contains("no byte has moved for 2 s"), "{error}");
}

#[test]
fn markers_of_two_servers_do_not_hold_a_transfer() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let source = blocks::start(Box::new(|_, control| Some(blocks::start_reply(control))));
    let error = count_at_destination(&site, &source.url("a-file-whose-path-has-some-bytes"));
    assert!(error.contains("no byte has moved for 2 s"), "{error}");
}

/// Copies to a destination that counts, and reads no data; returns the error.
fn count_at_destination(site: &Site, source: &str) -> String {
    let server = Scripted::start(Box::new(|line, control| {
        talk_of_upload(line, control).unwrap_or(true)
    }));
    let limits = ["--retry", "0", "--stall-timeout", "2"];
    site.fails(&[&["copy"], &limits[..], &[source, &server.url("a")]].concat())
}

/// Replies of that destination, which is in MODE E.
fn talk_of_upload(line: &str, control: &mut TcpStream) -> std::io::Result<bool> {
    let reply = match line.split(' ').next() {
        Some("FEAT") => blocks::FEATURES.to_owned(),
        Some("MLST" | "SIZE") => "550 No such file.\r\n".to_owned(),
        Some("PASV") => passive::listen()?,
        Some("STOR") => {
            control.write_all(b"150 Now.\r\n")?;
            return count_slowly(control).map(|()| true);
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

#[test]
fn what_a_source_says_to_have_stored_is_not_skipped() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let attempts = AtomicU64::new(0);
    let server = blocks::start(Box::new(move |_, control| {
        (attempts.fetch_add(1, Ordering::Relaxed) == 0).then(|| {
            blocks::start_reply(control)?;
            blocks::send_byte(0)?;
            control.write_all(b"111 Range Marker 0-9\r\n426 Broken.\r\n")
        })
    }));
    let url = server.url("a-file-whose-path-has-some-bytes");
    site.must(&["copy", "--mode", "extended", &url, "a"]);
    let commands = server.commands();
    let restart = commands.iter().find(|line| line.starts_with("REST"));
    assert_eq!(
        restart.map(String::as_str),
        Some("REST 0-1"),
        "{commands:?}"
    );
    let content = fs::read(site.local("a")).unwrap();
    assert_eq!(content, b"/a-file-whose-path-has-some-bytes");
}

#[test]
fn bytes_that_come_after_the_error_of_their_source_are_not_sent_again() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let attempts = AtomicU64::new(0);
    let server = blocks::start(Box::new(move |_, control| {
        (attempts.fetch_add(1, Ordering::Relaxed) == 0).then(|| {
            let mut data = blocks::connect()?;
            blocks::start_reply(control)?;
            control.write_all(b"426 Broken.\r\n")?;
            // A client that has heard enough closes the connection.
            data.set_read_timeout(Some(Duration::from_millis(500)))?;
            let closed = data.read(&mut [0]);
            assert!(closed.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
            blocks::send_byte_over(data, 0)
        })
    }));
    let url = server.url("a-file-whose-path-has-some-bytes");
    site.must(&["copy", "--mode", "extended", &url, "a"]);
    let commands = server.commands();
    assert!(commands.contains(&"REST 0-1".to_owned()), "{commands:?}");
}

#[test]
fn a_byte_in_each_attempt_does_not_hold_a_file() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let attempts = AtomicU64::new(0);
    let server = blocks::start(Box::new(move |_, control| {
        let offset = attempts.fetch_add(1, Ordering::Relaxed);
        Some(
            blocks::start_reply(control)
                .and_then(|()| blocks::send_byte(offset))
                .and_then(|()| control.write_all(b"426 Broken.\r\n")),
        )
    }));
    let url = server.url("a-file-whose-path-has-some-bytes");
    let error = site.fails(&["copy", "--retry", "2", "--mode", "extended", &url, "a"]);
    assert!(error.contains("426 Broken"), "{error}");
    let commands = server.commands();
    let attempts = commands.iter().filter(|line| line.starts_with("RETR"));
    assert_eq!(attempts.count(), 3, "{commands:?}");
    assert!(commands.contains(&"REST 0-1".to_owned()), "{commands:?}");
}

#[test]
fn a_flood_of_words_ends_a_transfer() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    for size in [7, 100] {
        let flood = Lies {
            after: FLOOD,
            size,
            ..HONEST
        };
        let error = fetch(&site, flood, &[]);
        assert!(error.contains("preliminary replies to RETR"), "{error}");
    }
}

#[test]
fn names_of_a_server_do_not_lead_out_of_the_directory() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    for listing in [
        &b"Type=file;Size=7; ../outside\r\n"[..],
        b"Type=file;Size=7; /tmp/outside\r\n",
        b"Type=dir; ..\r\nType=file;Size=7; a/../../outside\r\n",
        b"Type=file;Size=7; \r\n",
    ] {
        let content = listing;
        let kind = "dir";
        let url = serve(Lies {
            content,
            kind,
            ..HONEST
        });
        let error = site.fails(&["copy", "-r", "--retry", "0", &url, "into"]);
        assert!(error.contains("listing that cannot be used"), "{error}");
        assert_eq!(fs::read_dir(site.local("into")).unwrap().count(), 0);
        assert!(!site.local("outside").exists());
    }
    // A link that is there already.
    std::os::unix::fs::symlink("..", site.local("into/link")).unwrap();
    let content = b"Type=dir; link\r\nType=file;Size=7; outside\r\n";
    let kind = "dir";
    let url = serve(Lies {
        content,
        kind,
        ..HONEST
    });
    site.fails(&["copy", "-r", "--retry", "0", &url, "into"]);
    assert!(!site.local("outside").exists());
}

#[test]
fn an_endless_line_and_a_listing_that_is_cut_short_are_errors() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let content: &'static [u8] = Box::leak(vec![b'x'; 100_000].into_boxed_slice());
    let kind = "dir";
    let url = serve(Lies {
        content,
        kind,
        ..HONEST
    });
    let error = site.fails(&["copy", "-r", "--retry", "0", &url, "into"]);
    assert!(error.contains("a line of more than"), "{error}");
    let (content, after) = (&b"Type=file;Size=7; a\r\n"[..], "426 Gone.\r\n");
    let lies = Lies {
        content,
        after,
        kind,
        ..HONEST
    };
    let url = serve(lies);
    let error = site.fails(&["copy", "-r", "--retry", "0", &url, "into"]);
    assert!(error.contains("Gone"), "{error}");
}

#[test]
fn directories_that_cannot_be_read_keep_what_the_copy_has() {
    for second in ["550 Not for you.\r\n", "426 Gone.\r\n", ""] {
        let site = Site::anonymous(Kind::Gridhaul, &[]);
        let kept = ["into/sub/kept", "into/sub/deep/kept", "into/late", "into/a"];
        fs::create_dir_all(site.local("into/sub/deep")).unwrap();
        for name in kept {
            fs::write(site.local(name), "kept").unwrap();
        }
        let lies = Lies {
            content: b"Type=dir; sub\r\nType=file;Size=7; a\r\nType=file;Size=7; late\r\n",
            kind: "dir",
            second: Some(second),
            ..HONEST
        };
        let url = serve(lies);
        let error = site.fails(&["copy", "-r", "--delete", "--retry", "0", &url, "into"]);
        for name in kept {
            assert!(site.local(name).exists(), "{second:?} {name}: {error}");
        }
    }
}
