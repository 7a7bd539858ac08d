//! Sources that change while they are copied.

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gridhaul_interop::Kind;

use crate::passive;
use crate::scripted::Scripted;
use crate::site::Site;

/// What the server takes to send the file: many round trips of this machine, and no more than a moment.
const MOMENT: Duration = Duration::from_millis(400);

/// A server whose file is replaced by one of the same size while it is sent for the first time.
fn serve() -> Scripted {
    let sent = AtomicUsize::new(0);
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, &sent).unwrap_or(true)
    }))
}

fn talk(line: &str, control: &mut TcpStream, sent: &AtomicUsize) -> io::Result<bool> {
    let is_new = sent.load(Ordering::Relaxed) > 0;
    let reply = match line.split(' ').next().unwrap_or_default() {
        "FEAT" => "211-Features\r\n MLST type*;size*;modify*;\r\n211 End.\r\n".to_owned(),
        "MLST" => {
            let second = u8::from(is_new);
            let facts = format!("Type=file;Size=7;Modify=2026010100000{second};");
            format!("250-Facts\r\n {facts} /file\r\n250 End.\r\n")
        }
        "PASV" => passive::listen()?,
        "RETR" => {
            control.write_all(b"150 Here it comes.\r\n")?;
            let mut channel = passive::accept()?;
            channel.write_all(if is_new { b"is new!" } else { b"is old " })?;
            sent.fetch_add(1, Ordering::Relaxed);
            thread::sleep(MOMENT);
            "226 Complete.\r\n".to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

#[test]
fn a_source_that_is_replaced_within_a_moment_is_copied_again() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let copy = site.server.url("copy");
    for (options, to, place) in [
        (&[][..], "copy", site.local("copy")),
        (&["--relay"], copy.as_str(), site.served("copy")),
    ] {
        let server = serve();
        let ends = [&server.url("file"), to];
        let lines = site.must(&[&["copy", "--json"], options, &ends].concat());
        assert!(lines.contains("the source has changed"), "{lines}");
        assert_eq!(fs::read(place).unwrap(), b"is new!", "{lines}");
        let commands = server.commands();
        let sent = commands.iter().filter(|line| line.starts_with("RETR"));
        assert_eq!(sent.count(), 2, "{commands:?}");
    }
}
