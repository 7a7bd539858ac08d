//! A server that fails after the last byte of a file.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::passive;
use super::scripted::{Scripted, gridhaul};
use crate::site::texts;

/// Files of less are begun again.
const SIZE: usize = 5 << 20;

/// The bytes that the first attempt gets.
const FIRST: usize = 3 << 20;

/// A server that breaks off the first transfer, and after the second one when it is asked for facts of the file.
fn failing() -> Scripted {
    let [transfers, start, questions] = [const { AtomicUsize::new(0) }; 3];
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let reply = match verb {
            "FEAT" => {
                "211-Features\r\n SIZE\r\n REST STREAM\r\n MLST Type*;Size*;Modify*;\r\n211 End\r\n"
                    .to_owned()
            }
            "SIZE" => format!("213 {SIZE}\r\n"),
            "MLST" => {
                let is_received = transfers.load(Ordering::Relaxed) == 2;
                if is_received && questions.fetch_add(1, Ordering::Relaxed) == 0 {
                    return control.shutdown(Shutdown::Both).is_ok();
                }
                let facts = format!("Type=file;Size={SIZE};Modify=20260101000000;");
                format!("250-Facts\r\n {facts} {argument}\r\n250 End.\r\n")
            }
            "PASV" => passive::listen().unwrap(),
            "REST" => {
                start.store(argument.parse().unwrap(), Ordering::Relaxed);
                "350 From there.\r\n".to_owned()
            }
            "RETR" => {
                let _ = control.write_all(b"150 Now.\r\n");
                let mut data = passive::accept().unwrap();
                let is_first = transfers.fetch_add(1, Ordering::Relaxed) == 0;
                let start = start.load(Ordering::Relaxed);
                let end = if is_first { FIRST } else { SIZE };
                // The client may close the connection at any time.
                let _ = data.write_all(&vec![7; end.saturating_sub(start)]);
                drop(data);
                let last: &[u8] = match is_first {
                    true => b"426 Broken.\r\n",
                    false => b"226 Complete.\r\n",
                };
                return control.write_all(last).is_ok();
            }
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

#[test]
fn a_file_that_has_arrived_is_not_got_again() {
    let server = failing();
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("copy");
    let options = ["copy", "--mode", "stream"];
    let ends = [&server.url("a"), copy.to_str().unwrap()];
    let output = gridhaul(&[&options[..], &ends].concat());
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stderr.contains("the server closed"), "{stderr}");
    assert!(std::fs::read(&copy).unwrap() == vec![7; SIZE]);
    let commands = server.commands();
    let count = |verb: &str| {
        let of_verb = commands.iter().filter(|line| line.starts_with(verb));
        of_verb.count()
    };
    assert_eq!(count("RETR"), 2, "{stderr}{commands:?}");
    assert_eq!(count("REST"), 1, "{commands:?}");
}
