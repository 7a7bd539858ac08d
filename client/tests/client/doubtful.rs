//! Files of a pipeline that the destination may have stored with the content of others, and that the source then refuses.

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::blocks;
use super::passive;
use super::scripted::{Scripted, gridhaul};
use crate::site::texts;

/// What the error of such a file says.
pub(crate) const DOUBT: &str = "may have wrong content under this name: do not use it";

/// What a destination does with the fifth file, and with the eighth one.
#[derive(Clone, Copy)]
struct Fifth {
    /// Its reply to the first `STOR`, for which the data of the sixth file comes. Empty: the session ends without one.
    stored: &'static str,
    size: &'static str,
    /// The seconds of the time in `MLST`; those of the files before it are 10.
    seconds: u8,
    removed: &'static str,
    /// The destination refuses the eighth file.
    refuses_eighth: bool,
}

/// The seconds of the eighth file, and of those between it and the fifth one.
const EIGHTH: u8 = 12;
const BETWEEN: u8 = 14;

const OLD: Fifth = Fifth {
    stored: "",
    size: "213 3\r\n",
    seconds: 9,
    removed: "250 Gone.\r\n",
    refuses_eighth: false,
};

/// Waits for the end of the data connection: the client has left the source, and so has heard all that it has said.
fn source_goes() -> io::Result<()> {
    passive::with_data(|data| io::copy(data, &mut io::sink()).map(drop))
}

fn destination(fifth: Fifth) -> Scripted {
    let was_stored = AtomicBool::new(false);
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, fifth, &was_stored).unwrap_or(true)
    }))
}

fn seconds(path: &str, fifth: Fifth) -> u8 {
    match path.rsplit('/').next() {
        Some("f5") => fifth.seconds,
        Some("f6" | "f7") => BETWEEN,
        Some("f8") => EIGHTH,
        _ => 10,
    }
}

fn talk(
    line: &str,
    control: &mut TcpStream,
    fifth: Fifth,
    was_stored: &AtomicBool,
) -> io::Result<bool> {
    let (verb, path) = line.split_once(' ').unwrap_or((line, ""));
    let is_fifth = path.ends_with("/f5");
    let reply = match verb {
        "FEAT" => {
            "211-Features\r\n SIZE\r\n PARALLEL\r\n MLST type*;size*;modify*;\r\n211 End.\r\n"
                .to_owned()
        }
        "MLST" if path.contains("/f") => {
            let seconds = seconds(path, fifth);
            format!(
                "250-Facts\r\n Type=file;Size=3;Modify=202001010000{seconds:02}; {path}\r\n250 End.\r\n"
            )
        }
        "MLST" => "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n".to_owned(),
        "SIZE" if is_fifth => fifth.size.to_owned(),
        "SIZE" => "213 3\r\n".to_owned(),
        "DELE" => fifth.removed.to_owned(),
        "PASV" => passive::listen()?,
        "STOR" if fifth.refuses_eighth && path.ends_with("/f8") => {
            "553 Not that one.\r\n".to_owned()
        }
        // No data comes for it.
        "STOR" if is_fifth && was_stored.swap(true, Ordering::Relaxed) => return Ok(true),
        "ABOR" => "426 The transfer is aborted.\r\n226 Done.\r\n".to_owned(),
        "STOR" => {
            control.write_all(b"125 Come.\r\n")?;
            passive::with_data(blocks::receive)?;
            match (is_fifth, fifth.stored) {
                (true, "") => {
                    source_goes()?;
                    return control.shutdown(Shutdown::Both).map(|()| true);
                }
                (true, reply) => reply.to_owned(),
                (false, _) => "226 Complete.\r\n".to_owned(),
            }
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// A source that refuses the fifth file. It sends the first one when the client has found all others, so that they are in a pipeline.
fn source() -> Scripted {
    let (tell, has_found) = channel();
    let (tell, has_found) = (Mutex::new(tell), Mutex::new(Some(has_found)));
    let size = move |name: &str| {
        if name == "/f9" {
            // The client asks for it again if it comes later.
            let _ = tell.lock().unwrap().send(());
        }
        name.len()
    };
    blocks::start_with_sizes(
        Box::new(size),
        Box::new(move |name, control| {
            if name == "/f1"
                && let Some(has_found) = has_found.lock().unwrap().take()
            {
                has_found.recv_timeout(Duration::from_secs(30)).unwrap();
            }
            (name == "/f5").then(|| control.write_all(b"550 Not this one.\r\n"))
        }),
    )
}

/// Copies nine files, of which the source refuses the fifth one; returns the errors, and the commands of the destination.
fn copy_to(fifth: Fifth) -> (String, Vec<String>) {
    let (error, commands) = copy_with(fifth, &[]);
    assert_eq!(error.lines().count(), 1, "{error}");
    (error, commands)
}

/// As [`copy_to`], with these options.
fn copy_with(fifth: Fifth, further: &[&str]) -> (String, Vec<String>) {
    let source = source();
    let destination = destination(fifth);
    let urls = (1..10).map(|number| source.url(&format!("f{number}")));
    let urls: Vec<String> = urls.collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let options = ["copy", "-c", "1", "--retry", "0"];
    let output = gridhaul(&[&options[..], further, &urls, &[&destination.url("d/")]].concat());
    let (_, error) = texts(&output);
    assert!(error.contains("550 Not this one."), "{error}");
    assert!(source.has_read_ahead(), "they are in a pipeline");
    (error, destination.commands())
}

#[test]
fn what_may_be_an_old_file_stays_and_is_told_unless_it_is_one() {
    let (equal, newer) = (Fifth { seconds: 10, ..OLD }, Fifth { seconds: 11, ..OLD });
    let empty = Fifth {
        size: "213 0\r\n",
        ..newer
    };
    let missing = Fifth {
        size: "550 No such file.\r\n",
        ..newer
    };
    let busy = Fifth {
        size: "450 Later.\r\n",
        ..newer
    };
    let cases = [
        (OLD, false),
        (equal, true),
        (newer, true),
        (empty, false),
        (missing, false),
        (busy, true),
    ];
    for (fifth, is_doubtful) in cases {
        let (error, commands) = copy_to(fifth);
        assert_eq!(error.contains(DOUBT), is_doubtful, "{error} {commands:?}");
        let removed = "DELE /d/f5".to_owned();
        assert!(!commands.contains(&removed), "{commands:?}");
    }
}

#[test]
fn times_that_copies_get_are_no_proof_of_an_old_file() {
    let (error, _) = copy_with(OLD, &["--times"]);
    assert!(error.contains(DOUBT), "{error}");
}

#[test]
fn a_later_pipeline_does_not_make_a_doubtful_file_an_old_one() {
    let fifth = Fifth {
        refuses_eighth: true,
        ..OLD
    };
    let (error, _) = copy_with(fifth, &[]);
    let of = |name: &str| error.lines().find(|line| line.contains(name));
    // Changed after the fourth file, when there was data of others on the way, and before the seventh one.
    let eighth = of("/d/f8: ").unwrap_or_else(|| panic!("{error}"));
    assert!(eighth.contains(DOUBT), "{error}");
    assert!(
        !of("/d/f5: ").is_none_or(|fifth| fifth.contains(DOUBT)),
        "{error}"
    );
}

#[test]
fn what_was_stored_for_a_refused_file_is_removed_or_told() {
    let confirmed = Fifth {
        stored: "226 Complete.\r\n",
        ..OLD
    };
    let kept = Fifth {
        removed: "550 It stays.\r\n",
        ..confirmed
    };
    for (fifth, is_doubtful) in [(confirmed, false), (kept, true)] {
        let (error, commands) = copy_to(fifth);
        assert_eq!(error.contains(DOUBT), is_doubtful, "{error}");
        let removed = "DELE /d/f5".to_owned();
        assert!(commands.contains(&removed), "{commands:?}");
    }
}
