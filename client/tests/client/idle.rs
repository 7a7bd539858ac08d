//! Sessions that servers end while the client has no command for them, and those that break.

use std::fs;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use gridhaul_interop::{Kind, chown_to_nobody};

use crate::passive;
use crate::scripted::Scripted;
use crate::site::Site;

const END: &str = "421 Idle Timeout: closing control connection.\r\n";

/// A server with directories, whose entries the function has. `reply` sends the reply about each directory that was listed or made.
fn serve(
    listing: impl Fn(&str) -> &'static str + Send + Sync + 'static,
    reply: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, &listing, &reply).unwrap_or(true)
    }))
}

fn talk(
    line: &str,
    control: &mut TcpStream,
    listing: &dyn Fn(&str) -> &'static str,
    reply: &dyn Fn(&str, &mut TcpStream),
) -> std::io::Result<bool> {
    match line.split(' ').next().unwrap_or_default() {
        "FEAT" => control.write_all(b"211-Features\r\n MLST type*;size*;\r\n211 End.\r\n")?,
        "MLST" => control.write_all(b"250-Facts\r\n Type=dir; /d\r\n250 End.\r\n")?,
        "PASV" => control.write_all(passive::listen()?.as_bytes())?,
        "MKD" => reply("257 Made.\r\n", control),
        "MLSD" => {
            let mut channel = passive::accept()?;
            control.write_all(b"150 Here it comes.\r\n")?;
            channel.write_all(listing(line).as_bytes())?;
            drop(channel);
            reply("226 Complete.\r\n", control);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Three directories in each other and one more, all without files.
fn entries(line: &str) -> &'static str {
    match line {
        "MLSD /d" => "Type=dir; a\r\nType=dir; e\r\n",
        "MLSD /d/a" => "Type=dir; b\r\n",
        "MLSD /d/a/b" => "Type=dir; c\r\n",
        _ => "",
    }
}

/// The end of the session comes with the reply.
fn end(reply: &str, control: &mut TcpStream) {
    // The client may have gone.
    let _ = control.write_all(format!("{reply}{END}").as_bytes());
    let _ = control.shutdown(Shutdown::Both);
}

fn send(reply: &str, control: &mut TcpStream) {
    let _ = control.write_all(reply.as_bytes());
}

#[test]
fn directories_are_listed_and_made_on_new_sessions_when_each_one_ends() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let server = serve(entries, end);
    let url = server.url("d");
    site.must(&["copy", "-r", "--retry", "0", &url, "back"]);
    for name in ["a/b/c", "e"] {
        assert!(site.local("back").join(name).is_dir(), "{name}");
    }
    let server = serve(|_| "", end);
    site.must(&[
        "copy",
        "-r",
        "--retry",
        "0",
        "--sync",
        "back",
        &server.url("d"),
    ]);
    let commands = server.commands();
    for name in ["a", "a/b", "a/b/c", "e"] {
        let made = format!("MKD /d/{name}");
        assert!(commands.contains(&made), "{name}: {commands:?}");
    }
}

#[test]
fn a_directory_is_tried_again_when_its_session_breaks() {
    for reply in ["", "426 Gone.\r\n"] {
        let site = Site::anonymous(Kind::Gridhaul, &[]);
        let failures = AtomicU32::new(0);
        let server = Scripted::start(Box::new(move |line, control| {
            let fails = line == "MLSD /d/a/b";
            if fails && failures.fetch_add(1, Ordering::Relaxed) == 0 {
                let _ = control.write_all(reply.as_bytes());
                let _ = control.shutdown(Shutdown::Both);
                return true;
            }
            talk(line, control, &entries, &send).unwrap_or(true)
        }));
        let url = server.url("d");
        let again = ["copy", "-r", "--json", "--retry", "1"];
        let lines = site.must(&[&again[..], &[&url, "back"]].concat());
        assert!(lines.contains("tried again in 1 s"), "{lines}");
        assert!(site.local("back/a/b/c").is_dir() && site.local("back/e").is_dir());
    }
}

#[test]
fn a_source_is_looked_at_again_when_its_session_breaks() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let failures = AtomicU32::new(0);
    let server = Scripted::start(Box::new(move |line, control| {
        if line == "MLST /d" && failures.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = control.shutdown(Shutdown::Both);
            return true;
        }
        talk(line, control, &entries, &send).unwrap_or(true)
    }));
    let url = server.url("d");
    let again = ["copy", "-r", "--json", "--retry", "1"];
    let lines = site.must(&[&again[..], &[&url, "back"]].concat());
    assert!(lines.contains("tried again in 1 s"), "{lines}");
    assert!(site.local("back/a/b/c").is_dir() && site.local("back/e").is_dir());
}

#[test]
fn a_directory_is_made_again_when_its_session_breaks() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir_all(site.local("new/a/b/c")).unwrap();
    let failures = AtomicU32::new(0);
    let server = Scripted::start(Box::new(move |line, control| {
        if line == "MKD /d/a/b" && failures.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = control.shutdown(Shutdown::Both);
            return true;
        }
        talk(line, control, &|_| "", &send).unwrap_or(true)
    }));
    let url = server.url("d");
    let lines = site.must(&[
        "copy", "-r", "--json", "--retry", "1", "--sync", "new", &url,
    ]);
    assert!(lines.contains("tried again in 1 s"), "{lines}");
    let commands = server.commands();
    let made = commands.iter().filter(|line| *line == "MKD /d/a/b").count();
    assert_eq!(made, 2, "{commands:?}");
    assert!(
        commands.contains(&"MKD /d/a/b/c".to_owned()),
        "{commands:?}"
    );
}

/// Enough small files that the walk waits for the workers before it comes to the last directory.
fn make_files(root: &std::path::Path) {
    fs::create_dir(root).unwrap();
    for directory in 0..4 {
        let directory = root.join(directory.to_string());
        fs::create_dir(&directory).unwrap();
        for name in 0..400 {
            fs::write(directory.join(name.to_string()), [b'x'; 4096]).unwrap();
        }
        chown_to_nobody(&directory).unwrap();
    }
    chown_to_nobody(root).unwrap();
}

fn count(root: &std::path::Path) -> usize {
    let directories = fs::read_dir(root).unwrap();
    let entries = directories.map(|one| fs::read_dir(one.unwrap().path()).unwrap().count());
    entries.sum()
}

#[test]
fn a_slow_get_of_a_tree_outlives_the_idle_limit_of_the_server() {
    let site = Site::anonymous(Kind::Gridhaul, &["--idle-timeout", "3s"]);
    make_files(&site.served("tree"));
    let url = site.server.url("tree");
    site.must(&["copy", "-r", "--rate", "700k", &url, "back"]);
    assert_eq!(count(&site.local("back")), 1600);
}

#[test]
fn a_slow_put_of_a_tree_outlives_the_idle_limit_of_the_server() {
    let site = Site::anonymous(Kind::Gridhaul, &["--idle-timeout", "3s"]);
    make_files(&site.local("tree"));
    let url = site.server.url("new");
    site.must(&["copy", "-r", "--rate", "700k", "tree", &url]);
    assert_eq!(count(&site.served("new")), 1600);
}
