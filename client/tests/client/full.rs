//! Destinations that have no room left.

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::process::Command;

use gridhaul_interop::Kind;

use crate::passive;
use crate::scripted::{Scripted, gridhaul};
use crate::site::{Site, texts};
use gridhaul_skip::skipped;

/// What a client has said that copied a tree into a file system of 256 KiB, and the names that it has left there.
struct Said {
    output: String,
    errors: String,
    left: Vec<String>,
}

impl Said {
    fn lines(&self, words: &str) -> usize {
        self.errors
            .lines()
            .filter(|line| line.contains(words))
            .count()
    }
}

/// Copies `tree` of the server. The client has a mount namespace of its own, with the file system: nothing is left on the machine. `None`
/// if nothing can be mounted.
fn into_small(site: &Site, options: &[&str]) -> Option<Said> {
    fs::create_dir(site.local("small")).unwrap();
    let namespace = |script: &str| {
        let mount = "mount -t tmpfs -o size=256k,mode=777 none small || exit 3; ";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .args([&format!("{mount}{script}"), "sh"])
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", site.local("state"))
            .current_dir(site.place());
        command
    };
    let possible = namespace("true").output();
    if !possible
        .as_ref()
        .is_ok_and(|output| output.status.success())
    {
        skipped(&format!(
            "nothing can be mounted in a namespace here: {possible:?}"
        ));
        return None;
    }
    let output = namespace("\"$@\"; code=$?; ls -A small/copy > left; exit $code")
        .args([env!("CARGO_BIN_EXE_gridhaul"), "copy", "-r"])
        .args(options)
        .args([&site.server.url("tree"), "small/copy"])
        .output()
        .unwrap();
    let (said, errors) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{said}{errors}");
    let left = fs::read_to_string(site.local("left")).unwrap();
    Some(Said {
        output: said,
        errors,
        left: left.lines().map(str::to_owned).collect(),
    })
}

/// Files of `tree` at the server.
fn fill(site: &Site, files: &[(&str, usize)]) {
    fs::create_dir_all(site.served("tree")).unwrap();
    for (name, size) in files {
        fs::write(site.served("tree").join(name), vec![b'x'; *size]).unwrap();
    }
}

#[test]
fn a_copy_to_a_full_disk_is_given_up() {
    const FILES: usize = 300;

    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let names: Vec<String> = (0..FILES).map(|number| format!("f{number:03}")).collect();
    // Larger than what has no name until it is complete.
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), 20_000)).collect();
    fill(&site, &files);
    for mode in ["extended", "stream"] {
        let _ = fs::remove_dir(site.local("small"));
        let Some(said) = into_small(&site, &["-c", "2", "--mode", mode]) else {
            return;
        };
        // Eight in a row, and those that both workers have begun meanwhile.
        let failed = said.lines("No space left on device");
        assert!((8..=12).contains(&failed), "{mode}: {}", said.errors);
        assert_eq!(said.lines("given up"), 1, "{}", said.errors);
        assert_eq!(said.lines("has no room left"), 1, "{}", said.errors);
        assert_eq!(said.errors.lines().count(), failed + 1, "{}", said.errors);
        // The parts of small files take no room. Each file that is there is complete.
        assert!(
            !said.left.is_empty() && said.left.len() <= 12,
            "{:?}",
            said.left
        );
        assert!(
            said.left.iter().all(|name| names.contains(name)),
            "{:?}",
            said.left
        );
        // A file may be there whose last reply had not come yet when its worker gave up.
        let others = FILES - said.left.len();
        let is_told = |others: usize| said.output.contains(&format!(", {others} failed"));
        assert!((others..=others + 2).any(is_told), "{}", said.output);
    }
}

#[test]
fn small_files_are_copied_where_a_large_one_has_no_room() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let names: Vec<String> = (0..40).map(|number| format!("f{number:02}")).collect();
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), 1000)).collect();
    files.extend([("large", 1_000_000), ("larger", 2_000_000)]);
    fill(&site, &files);
    let Some(mut said) = into_small(&site, &["-c", "1"]) else {
        return;
    };
    assert_eq!(said.errors.lines().count(), 2, "{}", said.errors);
    assert_eq!(said.lines("No space left on device"), 2, "{}", said.errors);
    said.left.sort();
    assert_eq!(said.left, names);
}

/// When a server refuses an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before it begins.
    AtOnce,
    /// When all bytes have come.
    Late,
}

/// A server that refuses uploads in these words.
fn refusing(words: &'static str, when: When) -> Scripted {
    Scripted::start(Box::new(move |line, control| {
        // The client may close the connection at any time.
        refuse(line, control, words, when).unwrap_or(true)
    }))
}

fn refuse(line: &str, control: &mut TcpStream, words: &str, when: When) -> io::Result<bool> {
    let reply = match line.split(' ').next().unwrap_or_default() {
        "MKD" => "257 Made.\r\n".to_owned(),
        "DELE" => "550 No such file.\r\n".to_owned(),
        "PASV" => passive::listen()?,
        "STOR" => {
            if when == When::Late {
                control.write_all(b"150 Now.\r\n")?;
                let mut data = passive::accept()?;
                io::copy(&mut data, &mut io::sink())?;
            }
            format!("{words}\r\n")
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

#[test]
fn a_copy_to_a_server_without_room_is_given_up() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..100 {
        fs::write(tree.path().join(format!("f{number}")), "content").unwrap();
    }
    let uploads = |words: &'static str, when| {
        let server = refusing(words, when);
        let options = ["copy", "-r", "-c", "2", "--retry", "0"];
        let ends = [tree.path().to_str().unwrap(), &server.url("copy")];
        let output = gridhaul(&[&options[..], &ends].concat());
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let commands = server.commands();
        let count = |verb: &str| {
            commands
                .iter()
                .filter(|line| line.starts_with(verb))
                .count()
        };
        (count("STOR"), count("DELE"), errors)
    };
    for words in [
        "552 Quota.",
        "452 Not now.",
        "500 Command failed. : System error in write: No space left on device",
    ] {
        for when in [When::AtOnce, When::Late] {
            let (stored, removed, errors) = uploads(words, when);
            assert!((8..=10).contains(&stored), "{words}: {stored} {errors}");
            // Both names that the unfinished copy can have at a server like this one. An upload that has not begun has left none.
            let left = usize::from(when == When::Late);
            assert_eq!(removed, 2 * left * stored, "{words} {when:?}: {errors}");
            let given_up = errors.lines().filter(|line| line.contains("no room left"));
            assert_eq!(given_up.count(), 1, "{words}: {errors}");
        }
    }
    // That is about each file.
    let (stored, removed, errors) =
        uploads("552 System error in write: File too large", When::Late);
    assert_eq!((stored, removed), (100, 0), "{errors}");
}
