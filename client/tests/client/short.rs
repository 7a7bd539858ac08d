//! Destinations that call uploads complete, and have stored less than was sent.

use std::cell::Cell;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::blocks;
use crate::passive;
use crate::scripted::{Scripted, gridhaul};
use crate::site::texts;

const CONTENT: &str = "content";

/// What the server says about uploads of [`CONTENT`].
#[derive(Clone, Copy)]
struct Words {
    features: &'static str,
    /// The bytes of `SIZE`, where it is not refused.
    size: fn(&str) -> Option<usize>,
    /// The bytes in the marker at the end of an upload, if there is one.
    marker: fn(&str) -> Option<usize>,
    /// The type that `MLST` tells of uploads.
    kind: &'static str,
}

const HONEST: Words = Words {
    features: blocks::FEATURES,
    size: |_| Some(CONTENT.len()),
    marker: |_| None,
    kind: "file",
};

/// Three bytes of the fifth file are stored.
fn short_at_the_fifth(path: &str) -> Option<usize> {
    match path.ends_with('5') {
        true => Some(3),
        false => Some(CONTENT.len()),
    }
}

thread_local! {
    /// Whether the session of this thread is in MODE E.
    static IS_BLOCKS: Cell<bool> = const { Cell::new(false) };
}

fn start(words: Words) -> Scripted {
    // The client may close the connection at any time.
    Scripted::start(Box::new(move |line, control| {
        talk(line, control, words).unwrap_or(true)
    }))
}

fn talk(line: &str, control: &mut TcpStream, words: Words) -> io::Result<bool> {
    let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
    let reply = match verb {
        "FEAT" => words.features.to_owned(),
        "MODE" => {
            IS_BLOCKS.set(argument == "E");
            "200 yes\r\n".to_owned()
        }
        "MKD" => "257 made\r\n".to_owned(),
        "MLST" if !argument.ends_with(|last: char| last.is_ascii_digit()) => {
            format!("250-Facts\r\n Type=dir; {argument}\r\n250 End.\r\n")
        }
        "MLST" => format!(
            "250-Facts\r\n Type={}; {argument}\r\n250 End.\r\n",
            words.kind
        ),
        "SIZE" => match (words.size)(argument) {
            Some(size) => format!("213 {size}\r\n"),
            None => "550 Not for you.\r\n".to_owned(),
        },
        "PASV" => passive::listen()?,
        "STOR" => {
            control.write_all(b"150 Now.\r\n")?;
            receive()?;
            let marker = (words.marker)(argument);
            let marker = marker.map(|end| format!("111 Range Marker 0-{end}\r\n"));
            marker.unwrap_or_default() + "226 Complete.\r\n"
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// Receives a file, in either mode.
fn receive() -> io::Result<()> {
    match IS_BLOCKS.get() {
        true => passive::with_data(blocks::receive),
        false => passive::accept()?.read_to_end(&mut Vec::new()).map(drop),
    }
}

/// Copies files `1` to `9` of a directory to a server; whether that succeeds, and the error.
fn put_nine(server: &Scripted) -> (bool, String) {
    let tree = tempfile::tempdir().unwrap();
    for number in 1..10 {
        fs::write(tree.path().join(number.to_string()), CONTENT).unwrap();
    }
    let options = ["copy", "-r", "-c", "1", "--retry", "0"];
    let ends = [tree.path().to_str().unwrap(), &server.url("put")];
    let output = gridhaul(&[&options[..], &ends].concat());
    (output.status.success(), texts(&output).1)
}

/// Copies a single file as these options say; whether that succeeds, and the error.
fn put_one(server: &Scripted, options: &[&str]) -> (bool, String) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, CONTENT).unwrap();
    let ends = [file.to_str().unwrap(), &server.url("5")];
    let output = gridhaul(&[&["copy", "--retry", "0", "-T"], options, &ends].concat());
    (output.status.success(), texts(&output).1)
}

fn count(server: &Scripted, verb: &str) -> usize {
    let commands = server.commands();
    let of_verb = commands.iter().filter(|line| line.starts_with(verb));
    of_verb.count()
}

#[test]
fn an_upload_of_which_less_is_stored_has_failed() {
    for mode in ["stream", "extended"] {
        let server = start(Words {
            size: short_at_the_fifth,
            ..HONEST
        });
        let (is_complete, error) = put_one(&server, &["--mode", mode]);
        assert!(!is_complete, "{mode}");
        assert!(error.contains("has 7 bytes, and 3 were copied"), "{error}");
        let server = start(HONEST);
        let (is_complete, error) = put_one(&server, &["--mode", mode]);
        assert!(is_complete, "{mode}: {error}");
    }
}

#[test]
fn of_many_uploads_the_one_of_which_less_is_stored_has_failed() {
    let server = start(Words {
        size: short_at_the_fifth,
        ..HONEST
    });
    let (is_complete, error) = put_nine(&server);
    assert!(!is_complete);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("/5") && error.contains("and 3 were copied"),
        "{error}"
    );
    assert!(server.has_read_ahead(), "they are in a pipeline");
}

#[test]
fn markers_that_have_told_the_size_are_enough() {
    let right = |_: &str| Some(CONTENT.len());
    let server = start(Words {
        marker: right,
        ..HONEST
    });
    let (is_complete, error) = put_one(&server, &[]);
    assert!(is_complete, "{error}");
    assert_eq!(count(&server, "SIZE"), 1);
    // Of a refused `SIZE` the marker tells as well: a directory may be for uploads only.
    let server = start(Words {
        marker: right,
        size: |_| None,
        ..HONEST
    });
    let (is_complete, error) = put_one(&server, &[]);
    assert!(is_complete, "{error}");
    let (is_complete, error) = put_nine(&server);
    assert!(is_complete, "{error}");
    // It tells less of one file.
    let server = start(Words {
        marker: short_at_the_fifth,
        size: |_| None,
        ..HONEST
    });
    let (is_complete, error) = put_nine(&server);
    assert!(!is_complete);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("refused SIZE"), "{error}");
}

#[test]
fn a_size_that_is_wrong_once_costs_a_second_copy() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let server = start(Words {
        size: |path| {
            let is_first = path.ends_with('5') && ASKED.fetch_add(1, Ordering::Relaxed) == 0;
            Some(if is_first { 3 } else { CONTENT.len() })
        },
        ..HONEST
    });
    let (is_complete, error) = put_nine(&server);
    assert!(is_complete, "{error}");
    let commands = server.commands();
    let stored = commands.iter().filter(|line| *line == "STOR /put/5");
    assert_eq!(stored.count(), 2, "{commands:?}");
}

#[test]
fn of_a_server_without_sizes_and_of_a_device_the_confirmation_is_enough() {
    let server = start(Words {
        features: "211-Features\r\n PARALLEL\r\n211 End.\r\n",
        size: short_at_the_fifth,
        ..HONEST
    });
    let (is_complete, error) = put_one(&server, &[]);
    assert!(is_complete, "{error}");
    assert_eq!(count(&server, "SIZE"), 0);
    let server = start(Words {
        size: |_| Some(0),
        kind: "OS.unix=chr-1/3",
        ..HONEST
    });
    let (is_complete, error) = put_one(&server, &[]);
    assert!(is_complete, "{error}");
}
