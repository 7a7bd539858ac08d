//! Directories of the copy that are listed ahead, or vanish after the one above was listed.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use gridhaul_interop::Kind;

use crate::passive;
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
    let reply = match line.split(' ').next().unwrap_or_default() {
        "FEAT" => "211-Features\r\n SIZE\r\n MLST type*;size*;perm*;\r\n211 End.\r\n".to_owned(),
        "MLST" => "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n".to_owned(),
        "PASV" => passive::listen()?,
        "MKD" => {
            listing(line);
            "257 Made.\r\n".to_owned()
        }
        "MLSD" => {
            let mut channel = passive::accept()?;
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
fn a_session_of_its_own_lists_directories_ahead() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let directories = ["a", "b", "b/c", "e"];
    for directory in directories {
        fs::create_dir_all(site.local("tree").join(directory)).unwrap();
        fs::write(site.local("tree").join(directory).join("file"), "123").unwrap();
    }
    // One more, which the server does not have.
    fs::create_dir_all(site.local("tree/a/new/newer")).unwrap();
    let server = serve(|line| match line {
        "MLSD /d" => Some("Type=dir; a\r\nType=dir; b\r\nType=dir; e\r\n"),
        "MLSD /d/b" => Some("Type=dir; c\r\nType=file;Size=3; file\r\n"),
        "MLSD /d/a/new" | "MLSD /d/a/new/newer" => None,
        _ => Some("Type=file;Size=3; file\r\n"),
    });
    let tree = ["copy", "-r", "--dry-run", "--sync=size", "tree"];
    let said = site.must(&[&tree[..], &[&server.url("d")]].concat());
    assert!(
        said.contains("0 files") && said.contains("4 unchanged"),
        "{said}"
    );
    let commands = server.commands();
    let count = |wanted: &str| commands.iter().filter(|line| *line == wanted).count();
    assert_eq!(count("USER anonymous"), 2, "{commands:?}");
    for directory in directories {
        assert_eq!(count(&format!("MLSD /d/{directory}")), 1, "{commands:?}");
    }
    // Both sessions list more than one directory.
    assert_eq!(count("OPTS MLST type;size;"), 2, "{commands:?}");
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
