//! Many refused files among small ones.

use std::cell::Cell;
use std::fs;
use std::io::Write as _;

use super::blocks;
use super::passive;
use super::scripted::{Scripted, gridhaul};
use crate::site::texts;

/// A destination that keeps nothing, and refuses some files by their names.
fn refusing(is_refused: fn(&str) -> bool) -> Scripted {
    thread_local! {
        /// No connection was asked for since the last one broke.
        static IS_BROKEN: Cell<bool> = const { Cell::new(true) };
    }
    fn store() -> &'static str {
        if IS_BROKEN.get() {
            return "425 No data port.\r\n";
        }
        let received = passive::with_data(blocks::receive);
        IS_BROKEN.set(received.is_err());
        match received {
            Ok(()) => "226 Complete.\r\n",
            Err(_) => "426 The data connection broke.\r\n",
        }
    }
    Scripted::start(Box::new(move |line, control| {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let reply = match verb {
            "FEAT" => blocks::FEATURES.to_owned(),
            "MLST" => "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n".to_owned(),
            // All files have this content.
            "SIZE" => format!("213 {}\r\n", b"content".len()),
            "DELE" => "250 Gone.\r\n".to_owned(),
            "PASV" => {
                IS_BROKEN.set(false);
                passive::listen().unwrap()
            }
            "STOR" if is_refused(argument) => "553 Not this one.\r\n".to_owned(),
            "STOR" => {
                // The client may close the connection at any time.
                let _ = control.write_all(b"125 Come.\r\n");
                store().to_owned()
            }
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

#[test]
fn few_files_are_copied_again_where_a_tenth_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 1..=200 {
        fs::write(tree.join(format!("f{number}")), b"content").unwrap();
    }
    let server = refusing(|name| name.ends_with('0'));
    let url = server.url("d");
    let error = texts(&gridhaul(&[
        "copy",
        "-r",
        "-c",
        "1",
        tree.to_str().unwrap(),
        &url,
    ]))
    .1;
    assert_eq!(error.lines().count(), 20, "{error}");
    assert!(error.lines().all(|line| line.contains("553")), "{error}");
    let commands = server.commands();
    let stored = commands.iter().filter(|line| line.starts_with("STOR"));
    let stored = stored.count();
    assert!(server.has_read_ahead());
    // With 32 files always ahead: about 900.
    assert!(stored < 350, "{stored}");
}

#[test]
fn files_are_sent_ahead_again_after_some_that_were_refused() {
    let place = tempfile::tempdir().unwrap();
    let files: Vec<String> = (100..200)
        .map(|number| {
            let file = place.path().join(format!("f{number}"));
            fs::write(&file, b"content").unwrap();
            file.to_str().unwrap().to_owned()
        })
        .collect();
    let server = refusing(|name| matches!(name, "/d/f100" | "/d/f101" | "/d/f102"));
    let url = server.url("d/");
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let options = ["copy", "-c", "1", "--mode", "extended"];
    let error = texts(&gridhaul(&[&options[..], &files, &[&url]].concat())).1;
    assert_eq!(error.lines().count(), 3, "{error}");
    // Three pipelines of at most 32 files have ended with their first one; then some files came by themselves.
    let ahead = server.read_ahead();
    let is_late = |line: &String| line.as_str() > "STOR /d/f140";
    assert!(ahead.iter().any(is_late), "{ahead:?}");
}
