//! What a destination says after its source has failed.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::blocks;
use super::scripted::{Scripted, fails, gridhaul};
use crate::site::texts;

/// Files of less are begun again.
const SIZE: usize = 5 << 20;

/// A source whose control connection ends in the first transfer. Says when it has.
fn vanishing() -> (Scripted, Receiver<()>) {
    let (tell, told) = channel();
    let (tell, is_gone) = (Mutex::new(tell), AtomicBool::new(false));
    let server = blocks::start_with_sizes(
        Box::new(|_| SIZE),
        Box::new(move |_, control| {
            Some(match is_gone.swap(true, Ordering::Relaxed) {
                true => control.write_all(b"125 Again.\r\n226 Complete.\r\n"),
                false => control.shutdown(Shutdown::Both).map(|()| {
                    // The test may have ended.
                    let _ = tell.lock().unwrap().send(());
                }),
            })
        }),
    );
    (server, told)
}

/// A destination that tells what it has stored after its source has gone.
fn telling(source_is_gone: Receiver<()>) -> Scripted {
    let source_is_gone = Mutex::new(source_is_gone);
    let (has_begun, is_complete) = (AtomicBool::new(false), AtomicBool::new(false));
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let is_unfinished = argument.ends_with(".gridhaul-blocks");
        let reply = match verb {
            "FEAT" => blocks::FEATURES.to_owned(),
            "PASV" => "227 (127,0,0,1,1,1)\r\n".to_owned(),
            "REST" => "350 From there.\r\n".to_owned(),
            "SIZE" if is_unfinished != is_complete.load(Ordering::Relaxed) => {
                format!("213 {SIZE}\r\n")
            }
            "SIZE" | "MLST" => "550 No such file.\r\n".to_owned(),
            "STOR" if has_begun.swap(true, Ordering::Relaxed) => {
                is_complete.store(true, Ordering::Relaxed);
                "125 Again.\r\n226 Complete.\r\n".to_owned()
            }
            "STOR" => {
                // The client may close the connection at any time.
                let _ = control.write_all(b"150 Now.\r\n");
                let gone = source_is_gone.lock().unwrap();
                gone.recv_timeout(Duration::from_secs(60)).unwrap();
                "111 Range Marker 0-3000000\r\n426 Broken.\r\n".to_owned()
            }
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

#[test]
fn what_the_last_markers_of_a_destination_tell_is_not_sent_again() {
    let (source, is_gone) = vanishing();
    let destination = telling(is_gone);
    let output = gridhaul(&[
        "copy",
        "--mode",
        "extended",
        &source.url("a"),
        &destination.url("b"),
    ]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stderr.contains("source: the server closed"), "{stderr}");
    for server in [&source, &destination] {
        let commands = server.commands();
        let restart = "REST 0-3000000".to_owned();
        assert!(commands.contains(&restart), "{commands:?}");
    }
}

/// A server that begins a transfer, and refuses it before any byte.
fn refusing(last: &'static str) -> Scripted {
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "FEAT" => blocks::FEATURES.to_owned(),
            "PASV" => "227 (127,0,0,1,1,1)\r\n".to_owned(),
            "PORT" => "200 Yes.\r\n".to_owned(),
            "SIZE" => format!("213 {SIZE}\r\n"),
            "RETR" | "STOR" => format!("150 Now.\r\n{last}"),
            _ => return false,
        };
        // The client may close the connection at any time.
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

#[test]
fn a_destination_that_fails_without_any_byte_is_not_tried_again() {
    let source = refusing("426 Broken.\r\n");
    let destination = refusing("500 I cannot store this.\r\n");
    let urls = [source.url("a"), destination.url("b")];
    let output = gridhaul(&[
        "copy", "--retry", "1", "--mode", "extended", &urls[0], &urls[1],
    ]);
    let (stdout, stderr) = texts(&output);
    assert!(stderr.contains("I cannot store this"), "{stdout}{stderr}");
    let commands = destination.commands();
    let stores = commands.iter().filter(|line| line.starts_with("STOR"));
    assert_eq!(stores.count(), 1, "{stderr}{commands:?}");
}

/// A destination that waits for data connections until the client sends `ABOR`.
fn waiting() -> Scripted {
    Scripted::start(Box::new(|line, control: &mut TcpStream| {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "FEAT" => blocks::FEATURES,
            "MLST" => "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n",
            "PASV" => "227 (127,0,0,1,1,1)\r\n",
            "STOR" => "",
            "ABOR" => "426 The transfer is aborted.\r\n226 Done.\r\n",
            _ => return false,
        };
        // The client may close the connection at any time.
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

#[test]
fn a_destination_that_waits_for_a_refused_file_is_told_and_goes_on() {
    const FILES: usize = 8;

    let source = blocks::start(Box::new(|_, control| {
        Some(control.write_all(b"550 Not for you.\r\n"))
    }));
    let destination = waiting();
    let urls = (1..=FILES).map(|number| source.url(&format!("f{number}")));
    let urls: Vec<String> = urls.collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let options = ["copy", "-c", "1", "--pipeline", "1", "--mode", "extended"];
    let to = destination.url("d/");
    let error = fails(&[&options[..], &urls, &[&to]].concat());
    assert_eq!(error.lines().count(), FILES, "{error}");
    let is_of_source = |line: &str| line.contains("source: ") && line.contains("Not for you");
    assert!(error.lines().all(is_of_source), "{error}");
    let count = |verb: &str| {
        let commands = destination.commands();
        let of_verb = commands.iter().filter(|line| line.starts_with(verb));
        of_verb.count()
    };
    assert_eq!([count("STOR"), count("ABOR")], [FILES; 2], "{error}");
    // One session looks for files, and one copies them.
    assert!(count("USER") <= 3, "{error}");
}
