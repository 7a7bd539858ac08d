//! Sources that call a restarted file complete, and send nothing of it, and destinations that believe them.

use std::cell::Cell;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::blocks;
use super::scripted::{Scripted, gridhaul};
use crate::site::texts;

/// The commands that tell how the attempts of a copy begin.
fn attempts(server: &Scripted, moves: &str) -> Vec<String> {
    let commands = server.commands().into_iter();
    let told = commands.filter(|line| line.starts_with("REST") || line.starts_with(moves));
    told.map(|line| match line.starts_with("REST") {
        true => line,
        false => moves.to_owned(),
    })
    .collect()
}

/// A lie of a source after a restart.
type Lie = fn(&mut TcpStream) -> io::Result<()>;

#[test]
fn a_file_that_is_not_sent_after_a_restart_is_got_from_the_beginning() {
    const NAME: &str = "a-file-whose-path-has-some-bytes";

    const TWICE: &[&str] = &["RETR", "REST 0-1", "RETR", "REST 0-1", "RETR", "RETR"];
    const ONCE: &[&str] = &["RETR", "REST 0-1", "RETR", "RETR"];

    let lies: [(Lie, &[&str]); 3] = [
        // A connection may have lost so few bytes: the second restart shows that they are not sent.
        (|control| control.write_all(b"226 Complete.\r\n"), TWICE),
        (
            |control| {
                blocks::start_reply(control)?;
                drop(blocks::connect()?);
                control.write_all(b"226 Complete.\r\n")
            },
            TWICE,
        ),
        // The end of data has arrived without data.
        (
            |control| {
                blocks::start_reply(control)?;
                blocks::send(b"")?;
                control.write_all(b"226 Complete.\r\n")
            },
            ONCE,
        ),
    ];
    thread::scope(|scope| {
        for (lie, expected) in lies {
            scope.spawn(move || {
                let place = tempfile::tempdir().unwrap();
                let source = breaking_once(lie);
                let copy = place.path().join("copy");
                let options = ["copy", "--mode", "extended", "--retry", "3"];
                let limit = ["--stall-timeout", "3"];
                let ends = [&source.url(NAME), copy.to_str().unwrap()];
                let output = gridhaul(&[&options[..], &limit, &ends].concat());
                let (_, error) = texts(&output);
                assert!(output.status.success(), "{error}");
                assert_eq!(fs::read(&copy).unwrap(), format!("/{NAME}").as_bytes());
                assert_eq!(attempts(&source, "RETR"), expected, "{error}");
            });
        }
    });
}

/// A source whose first transfer breaks after a byte, and that lies after each restart.
fn breaking_once(lie: Lie) -> Scripted {
    let is_broken = AtomicBool::new(false);
    blocks::start(Box::new(move |_, control| {
        if blocks::takes_restart() {
            return Some(lie(control));
        }
        (!is_broken.swap(true, Ordering::Relaxed)).then(|| {
            blocks::start_reply(control)?;
            blocks::send_byte(0)?;
            control.write_all(b"426 Broken.\r\n")
        })
    }))
}

/// The size of files between two servers: those of less than 4 MiB are not continued.
const SIZE: usize = 5 << 20;

/// The size of files of which sockets do not hold what is missing.
const LARGE: usize = 80 << 20;

/// What a destination has of a file until its source goes.
const STORED: u64 = 3_000_000;

/// What a destination says to a `STOR` after a restart, for which no data comes. Empty: nothing until `ABOR`.
const ANSWERS: [&str; 2] = ["", "425 No data connection.\r\n"];

/// As [`ANSWERS`], of a destination that takes the end of data for that of the file.
const UNCHECKED: &str = "125 Come.\r\n226 Complete.\r\n";

/// The checksums of a destination, which has what is behind 4 MiB since its source has gone. Those of the source are always [`RIGHT`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    None,
    /// After the restart it has the whole file.
    Whole,
    /// After the restart it still lacks what is before 4 MiB.
    Hole,
}

const RIGHT: &str = "213 00000000000000000000000000000000\r\n";
const WRONG: &str = "213 11111111111111111111111111111111\r\n";

/// What happens between two servers.
#[derive(Clone, Copy)]
struct Play {
    size: usize,
    /// The first transfers break.
    breaks: usize,
    /// The answer of the destination after a restart.
    answer: &'static str,
    sums: Sums,
}

/// A source that lies after each restart. Its control connection ends in the transfers that break, and it says when; then it sends files.
fn lying(play: Play) -> (Scripted, Receiver<()>) {
    let (tell, told) = channel();
    let left = Mutex::new((tell, play.breaks));
    let size: Box<blocks::Size> = Box::new(move |_| play.size);
    let act: Box<blocks::Act> = Box::new(move |_, control| {
        if blocks::takes_restart() {
            return Some(control.write_all(b"226 Complete.\r\n"));
        }
        let mut left = left.lock().unwrap();
        if left.1 == 0 {
            return Some(control.write_all(b"125 Again.\r\n226 Complete.\r\n"));
        }
        left.1 -= 1;
        Some(control.shutdown(Shutdown::Both).map(|()| {
            // The test may have ended.
            let _ = left.0.send(());
        }))
    });
    let server = Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        match line.starts_with("CKSM") && play.sums != Sums::None {
            true => control.write_all(RIGHT.as_bytes()).is_ok(),
            false => blocks::talk(line, control, &*size, &*act).unwrap_or(true),
        }
    }));
    (server, told)
}

/// A destination that has stored a part of the file when its source goes.
fn receiving(play: Play, source_is_gone: Receiver<()>) -> Scripted {
    thread_local! {
        static IS_RESTARTED: Cell<bool> = const { Cell::new(false) };
    }
    let state = Mutex::new((source_is_gone, play.breaks));
    let is_complete = AtomicBool::new(false);
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let is_unfinished = argument.ends_with(".gridhaul-blocks");
        let reply = match verb {
            "FEAT" => blocks::FEATURES.to_owned(),
            "PASV" => "227 (127,0,0,1,1,1)\r\n".to_owned(),
            "REST" => {
                IS_RESTARTED.set(true);
                "350 From there.\r\n".to_owned()
            }
            "CKSM" if play.sums != Sums::None => {
                let is_whole = play.sums == Sums::Whole && is_complete.load(Ordering::Relaxed);
                match is_whole || !is_in_hole(argument) {
                    true => RIGHT.to_owned(),
                    false => WRONG.to_owned(),
                }
            }
            "SIZE" if is_unfinished != is_complete.load(Ordering::Relaxed) => {
                format!("213 {}\r\n", play.size)
            }
            "SIZE" | "MLST" => "550 No such file.\r\n".to_owned(),
            "STOR" if IS_RESTARTED.take() => {
                let is_confirmed = play.answer.contains("226");
                is_complete.fetch_or(is_confirmed, Ordering::Relaxed);
                play.answer.to_owned()
            }
            "STOR" => {
                let mut state = state.lock().unwrap();
                if state.1 == 0 {
                    is_complete.store(true, Ordering::Relaxed);
                    "125 Again.\r\n226 Complete.\r\n".to_owned()
                } else {
                    state.1 -= 1;
                    // The client may close the connection at any time.
                    let _ = control.write_all(b"150 Now.\r\n");
                    state.0.recv_timeout(Duration::from_secs(60)).unwrap();
                    format!("111 Range Marker 0-{STORED}\r\n426 Broken.\r\n")
                }
            }
            "ABOR" => "426 The transfer is aborted.\r\n226 Done.\r\n".to_owned(),
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

/// Whether the range of a `CKSM` has bytes that the destination lacked when its source had gone.
fn is_in_hole(argument: &str) -> bool {
    let mut words = argument.split(' ').skip(1);
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (offset, length) = (number(), number());
    offset < 4 << 20 && offset + length > STORED
}

/// Copies a file between two servers, and tries it again so often. Returns whether it is complete, the errors, and the attempts, of which
/// both servers see the same.
fn copy_between(play: Play, retries: &str) -> (bool, String, Vec<String>) {
    let (source, is_gone) = lying(play);
    let destination = receiving(play, is_gone);
    let options = ["copy", "--mode", "extended", "--stall-timeout", "3"];
    let urls = [&source.url("a")[..], &destination.url("b")];
    let output = gridhaul(&[&options[..], &["--retry", retries], &urls].concat());
    let (_, error) = texts(&output);
    let seen = [(&source, "RETR"), (&destination, "STOR")].map(|(server, moves)| {
        let attempts = attempts(server, moves).into_iter();
        let named = attempts.map(|line| {
            if line == moves {
                "move".to_owned()
            } else {
                line
            }
        });
        named.collect::<Vec<_>>()
    });
    assert_eq!(seen[0], seen[1], "{error}");
    let [seen, _] = seen;
    (output.status.success(), error, seen)
}

const RESTART: &str = "REST 0-3000000";

#[test]
fn a_file_that_is_not_sent_after_a_restart_goes_between_servers_from_the_beginning() {
    for answer in ANSWERS {
        let play = Play {
            size: LARGE,
            breaks: 1,
            answer,
            sums: Sums::None,
        };
        let (is_complete, error, attempts) = copy_between(play, "2");
        assert!(is_complete, "{answer:?}: {error}");
        assert!(
            error.contains("complete after a restart, and 0 of the missing 80886080 bytes"),
            "{error}"
        );
        assert_eq!(attempts, ["move", RESTART, "move", "move"], "{error}");
    }
}

#[test]
fn what_a_connection_may_have_lost_between_servers_is_asked_for_twice() {
    let play = Play {
        size: SIZE,
        breaks: 1,
        answer: ANSWERS[1],
        sums: Sums::None,
    };
    let (is_complete, error, attempts) = copy_between(play, "3");
    assert!(is_complete, "{error}");
    assert!(error.contains("remove the unfinished copy"), "{error}");
    let expected = ["move", RESTART, "move", RESTART, "move", "move"];
    assert_eq!(attempts, expected, "{error}");
}

#[test]
fn a_later_break_is_continued_and_not_sent_from_the_beginning() {
    // Both times there is something to continue.
    let play = Play {
        size: LARGE,
        breaks: 2,
        answer: ANSWERS[1],
        sums: Sums::None,
    };
    let (is_complete, error, attempts) = copy_between(play, "3");
    assert!(!is_complete, "{error}");
    let expected = ["move", RESTART, "move", "move", RESTART, "move"];
    assert_eq!(attempts, expected, "{error}");
}

#[test]
fn a_file_that_both_servers_call_complete_after_a_restart_has_no_hole() {
    const TOLD: &str = "125 Come.\r\n111 Range Marker 3000000-5242880\r\n226 Complete.\r\n";
    const RESTART_AROUND: &str = "REST 0-3000000,4194304-5242880";

    let once = |restart| vec!["move", restart, "move"];
    let again = |restart| vec!["move", restart, "move", "move"];
    let cases = [
        (UNCHECKED, Sums::None, again(RESTART)),
        (UNCHECKED, Sums::Hole, again(RESTART_AROUND)),
        (UNCHECKED, Sums::Whole, once(RESTART_AROUND)),
        (TOLD, Sums::None, once(RESTART)),
        (TOLD, Sums::Hole, once(RESTART_AROUND)),
    ];
    for (answer, sums, expected) in cases {
        let play = Play {
            size: SIZE,
            breaks: 1,
            answer,
            sums,
        };
        let (is_complete, error, attempts) = copy_between(play, "2");
        assert!(is_complete, "{error}");
        assert_eq!(attempts, expected, "{error}");
        let is_told = error.contains("the destination does not say that it has all of it");
        assert_eq!(is_told, expected.len() == 4, "{error}");
    }
}
