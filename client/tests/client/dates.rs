//! Times of sources that copies on servers get, without a wait for each file.

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use gridhaul_interop::Kind;

use crate::blocks;
use crate::passive;
use crate::pipeline::{FILES, fill, name};
use crate::scripted::{Scripted, gridhaul};
use crate::site::{Site, number, texts};

const CONTENT: &str = "content";

/// A server that takes uploads in MODE E and sets times. It refuses one command: the verb and the path are the words.
fn serve(refused: &'static str) -> Scripted {
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        talk(line, control, refused).unwrap_or(true)
    }))
}

fn talk(line: &str, control: &mut TcpStream, refused: &str) -> io::Result<bool> {
    let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
    let is_refused = refused.starts_with(verb) && argument.ends_with(&refused[4..]);
    let reply = match verb {
        "STOR" | "MFMT" if is_refused => "550 Not this one.\r\n".to_owned(),
        "FEAT" => "211-Features\r\n SIZE\r\n PARALLEL\r\n MFMT\r\n MLST type*;size*;modify*;\r\n211 End.\r\n".to_owned(),
        "MLST" => format!("250-Facts\r\n Type=dir; {argument}\r\n250 End.\r\n"),
        "SIZE" => format!("213 {}\r\n", CONTENT.len()),
        "MFMT" => "213 Modify.\r\n".to_owned(),
        "PASV" => passive::listen()?,
        "STOR" => {
            control.write_all(b"150 Now.\r\n")?;
            passive::with_data(blocks::receive)?;
            "226 Complete.\r\n".to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

/// Copies files `1` to `40` of a directory to the server; whether that succeeds, and the error.
fn put_forty(server: &Scripted) -> (bool, String) {
    let tree = tempfile::tempdir().unwrap();
    for number in 1..=40 {
        fs::write(tree.path().join(number.to_string()), CONTENT).unwrap();
    }
    let options = ["copy", "-r", "-c", "1", "--retry", "0", "--times"];
    let ends = [tree.path().to_str().unwrap(), &server.url("put")];
    let output = gridhaul(&[&options[..], &ends].concat());
    (output.status.success(), texts(&output).1)
}

/// The places of a command about each file in what the server was told.
fn places(server: &Scripted, verb: &str, file: u32) -> Vec<usize> {
    let commands = server.commands();
    let is_one = |line: &String| line.starts_with(verb) && line.ends_with(&format!("/put/{file}"));
    let places = commands.iter().enumerate();
    places
        .filter(|(_, line)| is_one(line))
        .map(|(place, _)| place)
        .collect()
}

#[test]
fn times_are_set_behind_the_files_that_follow() {
    let server = serve("none");
    let (is_complete, error) = put_forty(&server);
    assert!(is_complete, "{error}");
    for file in 1..=40 {
        let (stored, dated) = (places(&server, "STOR", file), places(&server, "MFMT", file));
        assert_eq!((stored.len(), dated.len()), (1, 1), "{file}");
        assert!(stored < dated, "{file}");
    }
    let ahead = server.read_ahead();
    let ahead = ahead.iter().filter(|line| line.starts_with("STOR"));
    assert!(ahead.count() > 20, "{:?}", server.commands());
}

#[test]
fn the_file_before_does_not_get_the_time_of_one_that_is_refused() {
    let server = serve("STOR/put/5");
    let (is_complete, error) = put_forty(&server);
    assert!(!is_complete);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("refused STOR"), "{error}");
    for file in 1..=40 {
        assert_eq!(
            places(&server, "MFMT", file).is_empty(),
            file == 5,
            "{file}"
        );
    }
}

#[test]
fn a_time_that_is_refused_is_the_error_of_its_file() {
    let server = serve("MFMT/put/5");
    let (is_complete, error) = put_forty(&server);
    assert!(!is_complete);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("refused MFMT") && error.contains("/put/5"),
        "{error}"
    );
    for file in 1..=40 {
        let dated = places(&server, "MFMT", file);
        // Those behind it may be copied again.
        assert!(!dated.is_empty() && dated.len() <= 3, "{file}: {dated:?}");
    }
}

#[test]
fn trees_are_unchanged_after_they_were_copied_with_their_times() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (there, third) = (site.server.url("there"), site.server.url("third"));
    fill(&site.local("tree"));
    for number in 0..FILES {
        let file = fs::File::options()
            .append(true)
            .open(site.local("tree").join(name(number)));
        let age = Duration::from_secs(1_000_000 + number as u64);
        let modified = SystemTime::now() - age;
        file.unwrap().set_modified(modified).unwrap();
    }
    for ends in [["tree", &there], [&there, &third]] {
        let copy = |options: &[&str]| {
            let all = [
                &["copy", "-r", "--json", "--sync", "-c", "2"],
                options,
                &ends,
            ]
            .concat();
            site.must(&all)
        };
        let first = copy(&[]);
        assert_eq!(number(&first, "files"), FILES, "{first}");
        let second = copy(&[]);
        assert_eq!(number(&second, "unchanged"), FILES, "{second}");
    }
}
