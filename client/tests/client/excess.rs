//! Servers that send more than they have announced, or than they were asked for.

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridhaul_interop::Kind;

use crate::blocks;
use crate::passive;
use crate::scripted::Scripted;
use crate::site::{Site, texts};

/// What servers send.
const MUCH: [u8; 100] = [b'x'; 100];

/// The copy before.
const BEFORE: [u8; 50] = [b'-'; 50];

/// A server whose file has so many bytes by its own words, more with each question, and that sends [`MUCH`] for everything.
fn streams(sizes: &'static [usize]) -> Scripted {
    let asked = AtomicUsize::new(0);
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, sizes, &asked).unwrap_or(true)
    }))
}

fn talk(
    line: &str,
    control: &mut TcpStream,
    sizes: &[usize],
    asked: &AtomicUsize,
) -> io::Result<bool> {
    let reply = match line.split(' ').next().unwrap_or_default() {
        "FEAT" => "211-Features\r\n SIZE\r\n MLST type*;size*;\r\n211 End.\r\n".to_owned(),
        "MLST" => {
            let question = asked.fetch_add(1, Ordering::Relaxed);
            let size = sizes[question.min(sizes.len() - 1)];
            format!("250-Facts\r\n Type=file;Size={size}; /file\r\n250 End.\r\n")
        }
        "PASV" => passive::listen()?,
        "RETR" | "ERET" => {
            control.write_all(b"150 Here it comes.\r\n")?;
            let mut channel = passive::accept()?;
            channel.write_all(&MUCH)?;
            "226 Complete.\r\n".to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// A server that sends [`MUCH`] for everything in one block. The size of a file is the length of its path.
fn in_blocks() -> Scripted {
    blocks::start(Box::new(|_, control| {
        Some(blocks::start_reply(control).and_then(|()| {
            blocks::send(&MUCH)?;
            control.write_all(b"226 Complete.\r\n")
        }))
    }))
}

const PART: [&str; 4] = ["--offset", "10", "--length", "5"];

#[test]
fn a_part_changes_no_byte_behind_its_end() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    for (mode, server) in [("stream", streams(&[60])), ("extended", in_blocks())] {
        fs::write(site.local("part"), BEFORE).unwrap();
        let url = server.url("a-file-whose-path-has-some-bytes");
        let options = ["copy", "--retry", "0", "--mode", mode];
        let error = site.fails(&[&options[..], &PART, &[&url, "part"]].concat());
        assert!(error.contains("sends more than the 5 bytes"), "{error}");
        let mut expected = BEFORE;
        if mode == "stream" {
            expected[10..15].fill(b'x');
        }
        assert_eq!(fs::read(site.local("part")).unwrap(), expected, "{mode}");
    }
}

#[test]
fn nothing_is_written_behind_the_size_of_a_file() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    for (mode, server) in [("stream", streams(&[5])), ("extended", in_blocks())] {
        fs::write(site.local("file"), BEFORE).unwrap();
        let options = ["copy", "--retry", "0", "--mode", mode];
        let error = site.fails(&[&options[..], &[&server.url("f123"), "file"]].concat());
        assert!(error.contains("sends more than the 5 bytes"), "{error}");
        assert_eq!(fs::read(site.local("file")).unwrap(), BEFORE, "{mode}");
        for form in ["part", "blocks"] {
            let unfinished = fs::metadata(site.local(&format!(".file.gridhaul-{form}")));
            assert!(unfinished.map_or(0, |found| found.len()) <= 5, "{mode}");
        }
    }
}

#[test]
fn standard_output_gets_no_more_than_was_asked_for() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let server = streams(&[60]);
    let output = site.gridhaul(&[&["copy"], &PART[..], &[&server.url("file"), "-"]].concat());
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("sends more than the 5 bytes"), "{stderr}");
    assert_eq!(stdout, "xxxxx");
}

#[test]
fn a_file_that_has_grown_is_copied_in_its_new_size() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let server = streams(&[60, 100]);
    let lines = site.must(&["copy", "--json", &server.url("file"), "grown"]);
    assert!(lines.contains("the file has grown meanwhile"), "{lines}");
    assert_eq!(fs::read(site.local("grown")).unwrap(), MUCH);
}

#[test]
fn a_file_that_changes_without_end_is_given_up() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let asked = Arc::<AtomicUsize>::default();
    let size = |questions: usize| questions.min(5) * (5 << 20);
    let counted = Arc::clone(&asked);
    // More with each of the first questions, and never all of it: each attempt stores more than the one before.
    let server = blocks::start_with_sizes(
        Box::new(move |_| size(counted.fetch_add(1, Ordering::Relaxed) + 1)),
        Box::new(move |_, control| {
            Some(blocks::start_reply(control).and_then(|()| {
                blocks::send(&vec![b'x'; size(asked.load(Ordering::Relaxed)) - 1])?;
                control.write_all(b"226 Complete.\r\n")
            }))
        }),
    );
    let options = ["copy", "--retry", "1", "--mode", "extended"];
    let error = site.fails(&[&options[..], &[&server.url("file"), "copy"]].concat());
    assert!(error.contains("it has changed meanwhile"), "{error}");
    let commands = server.commands();
    let attempts = commands.iter().filter(|line| line.starts_with("RETR"));
    assert_eq!(attempts.count(), 2, "{commands:?}");
}
