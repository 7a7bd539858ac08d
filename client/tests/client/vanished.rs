//! Directories of the copy that vanish after the one above was listed.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use gridhaul_interop::Kind;

use crate::scripted::Scripted;
use crate::site::Site;

/// A server that lists a directory as the function says, or refuses to: `None`.
fn serve(listing: impl Fn(&str) -> Option<&'static str> + Send + Sync + 'static) -> Scripted {
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, &listing).unwrap_or(true)
    }))
}

fn talk(
    line: &str,
    control: &mut TcpStream,
    listing: &dyn Fn(&str) -> Option<&'static str>,
) -> std::io::Result<bool> {
    thread_local! {
        static DATA: TcpListener = TcpListener::bind("127.0.0.1:0").unwrap();
    }
    let reply = match line.split(' ').next().unwrap_or_default() {
        "FEAT" => "211-Features\r\n SIZE\r\n MLST type*;size*;\r\n211 End.\r\n".to_owned(),
        "MLST" => "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n".to_owned(),
        "PASV" => {
            let port = DATA.with(TcpListener::local_addr)?.port();
            format!("227 (127,0,0,1,{},{})\r\n", port / 256, port % 256)
        }
        "MKD" => {
            listing(line);
            "257 Made.\r\n".to_owned()
        }
        "MLSD" => {
            let (mut channel, _) = DATA.with(TcpListener::accept)?;
            match listing(line) {
                Some(content) => {
                    control.write_all(b"150 Here it comes.\r\n")?;
                    channel.write_all(content.as_bytes())?;
                    "226 Complete.\r\n".to_owned()
                }
                None => "550 No such directory.\r\n".to_owned(),
            }
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

#[test]
fn a_directory_that_a_server_has_no_more_is_made_again() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir_all(site.local("tree/sub")).unwrap();
    let is_made = AtomicBool::new(false);
    let server = serve(move |line| match line {
        "MKD /d/sub" => {
            is_made.store(true, Ordering::Relaxed);
            None
        }
        "MLSD /d/sub" => is_made.load(Ordering::Relaxed).then_some(""),
        _ => Some("Type=dir; sub\r\n"),
    });
    site.must(&[
        "copy",
        "-r",
        "--sync",
        "--retry",
        "0",
        "tree",
        &server.url("d"),
    ]);
    let commands = server.commands();
    let place = |wanted: &str| commands.iter().position(|line| line == wanted);
    // Only after it was missing.
    assert!(place("MLSD /d/sub").is_some(), "{commands:?}");
    assert!(place("MLSD /d/sub") < place("MKD /d/sub"), "{commands:?}");
}

#[test]
fn a_directory_that_is_here_no_more_is_made_again() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let sub = site.local("into/sub");
    fs::create_dir_all(&sub).unwrap();
    let vanishing = sub.clone();
    // The source is listed after the directory of the copy was.
    let server = serve(move |line| match line {
        "MLSD /tree" => {
            fs::remove_dir(&vanishing).unwrap();
            Some("Type=dir; sub\r\n")
        }
        _ => Some(""),
    });
    site.must(&[
        "copy",
        "-r",
        "--sync",
        "--retry",
        "0",
        &server.url("tree"),
        "into",
    ]);
    assert!(sub.is_dir(), "{:?}", server.commands());
}
