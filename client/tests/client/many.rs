//! The memory of the client while it walks through many entries.

use std::io::{self, BufWriter, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use gridhaul_interop::support::usage::ProcessTree;

use crate::passive;
use crate::scripted::Scripted;

/// The entries of each directory in a tree.
const EACH: usize = 1000;

/// Where the entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// In directories of [`EACH`] files.
    Tree,
    /// In one directory.
    Flat,
}

/// A server with so many files beneath `/t`.
fn serve(shape: Shape, files: usize) -> Scripted {
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, shape, files).unwrap_or(true)
    }))
}

fn talk(line: &str, control: &mut TcpStream, shape: Shape, files: usize) -> io::Result<bool> {
    let reply = match line.split(' ').next().unwrap_or_default() {
        "FEAT" => "211-Features\r\n MLST type*;size*;modify*;\r\n211 End.\r\n".to_owned(),
        "MLST" => "250-Facts\r\n Type=dir; /t\r\n250 End.\r\n".to_owned(),
        "PASV" => passive::listen()?,
        "MLSD" => {
            control.write_all(b"150 Here it comes.\r\n")?;
            let channel = passive::accept()?;
            let mut channel = BufWriter::with_capacity(1 << 16, channel);
            let (kind, entries) = match (shape, line) {
                (Shape::Flat, _) => ("file", files),
                (Shape::Tree, "MLSD /t") => ("dir", files / EACH),
                (Shape::Tree, _) => ("file", EACH),
            };
            for entry in 0..entries {
                let facts = "Size=1;Modify=20260101000000;";
                write!(
                    channel,
                    "Type={kind};{facts} an-entry-of-its-directory-{entry:08}\r\n"
                )?;
            }
            channel.flush()?;
            "226 Complete.\r\n".to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// The peak of the memory of a client that walks through so many files, in bytes. What it takes in its last moment is not seen.
fn peak(shape: Shape, files: usize) -> u64 {
    let server = serve(shape, files);
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gridhaul"))
        .args(["copy", "-r", "--dry-run", "--quiet", &server.url("t")])
        .arg(home.path().join("copy"))
        .env_clear()
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak = 0;
    let status = loop {
        // The mark never falls, so that nothing in between is missed.
        peak = peak.max(ProcessTree::of(child.id()).peak_memory());
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success(), "{shape:?} {files}");
    let commands = server.commands();
    let listed = commands.iter().filter(|line| line.starts_with("MLSD"));
    let directories = match shape {
        Shape::Tree => files / EACH,
        Shape::Flat => 0,
    };
    assert_eq!(listed.count(), directories + 1, "{shape:?} {files}");
    peak
}

/// Walks through so many files, and through four times as many.
fn check(files: usize) {
    /// The program itself, its threads, and the files that wait for workers.
    const MOST: u64 = 48 << 20;
    /// Allocators do not give all back.
    const MORE: u64 = 4 << 20;

    for shape in [Shape::Tree, Shape::Flat] {
        let (few, many) = (peak(shape, files), peak(shape, 4 * files));
        eprintln!("{shape:?}: {few} bytes with {files} files, {many} with four times as many");
        assert!(many <= MOST, "{shape:?}: {many}");
        assert!(many <= few + MORE, "{shape:?}: {few} {many}");
    }
}

#[test]
fn memory_does_not_grow_with_the_number_of_entries() {
    check(25_000);
}

#[test]
#[ignore = "takes a minute: make many-entries"]
fn memory_does_not_grow_with_a_million_entries() {
    check(250_000);
}
