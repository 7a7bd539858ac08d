//! `-` as standard input and standard output, and `gridhaul cat`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Output, Stdio};

use gridhaul_interop::Kind;

use crate::scripted::{Scripted, gridhaul};
use crate::site::{Site, assert_same, texts};

/// Runs the client with the source at standard input.
fn with_source(site: &Site, arguments: &[&str]) -> Output {
    let source = File::open(site.local("source")).unwrap();
    site.command(arguments).stdin(source).output().unwrap()
}

#[test]
fn streams_are_stored_and_written_with_all_logins() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for site in [Site::anonymous(kind, &[]), Site::gsi(kind, &[])] {
            let url = site.server.url("a");
            for options in [&[][..], &["--checksum", "md5"]] {
                let put = [&["copy"], options, &["-", &url]].concat();
                let (_, stderr) = texts(&with_source(&site, &put));
                assert_eq!(stderr, "", "{kind:?}");
                assert_same(&site.local("source"), &site.served("a"), options);
                let source = fs::read(site.local("source")).unwrap();
                let get = [&["copy"], options, &[&url, "-"]].concat();
                let got = site.gridhaul(&get);
                assert!(got.status.success(), "{:?}", texts(&got).1);
                assert!(got.stdout == source, "{kind:?} {options:?}");
                let cat = [&["cat"], options, &[&url, &url]].concat();
                let got = site.gridhaul(&cat);
                assert!(got.status.success(), "{:?}", texts(&got).1);
                assert!(got.stdout == [&*source, &*source].concat(), "{kind:?}");
            }
        }
    }
}

#[test]
fn input_of_a_pipe_arrives_while_the_pipe_stays_open() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let mut child = site
        .command(&["copy", "--json", "-", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![b'x'; 1_000_000]).unwrap();
    input.write_all(b"end").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let (stdout, _) = texts(&output);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains(r#""bytes":1000003"#), "{stdout}");
    assert_eq!(fs::metadata(site.served("a")).unwrap().len(), 1_000_003);
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let mut child = site
        .command(&["cat", &url, &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(texts(&output).1, "");
}

#[test]
fn a_part_is_written_to_standard_output() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let got = site.gridhaul(&["copy", "--offset", "5", "--length", "1000", &url, "-"]);
    let source = fs::read(site.local("source")).unwrap();
    assert!(got.stdout == source[5..1005], "{:?}", texts(&got).1);
}

#[test]
fn a_server_that_refuses_is_named_at_once() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let missing = site.server.url("missing");
    let error = site.fails(&["cat", &missing]);
    assert!(error.contains("No such file"), "{error}");
    // Nothing comes from this pipe, and it stays open.
    let mut child = site
        .command(&["copy", "-", &site.server.url("no/directory")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _input = child.stdin.take().unwrap();
    let mut error = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(error.contains("the server refused STOR"), "{error}");
}

#[test]
fn options_for_files_are_refused() {
    let server = Scripted::start(Box::new(|_, _| false));
    let url = server.url("a");
    for (arguments, expected) in [
        (&["copy", "--resume", "-", &url][..], "--resume is not"),
        (&["copy", "--parallel", "2", "-", &url], "--parallel is not"),
        (&["copy", "--offset", "2", "-", &url], "--offset or"),
        (&["copy", "--json", &url, "-"], "--json is not"),
        (&["copy", "-", "-"], "- is standard input"),
        (&["copy", "-", "x"], "- is standard input"),
        (&["copy", &url, &url, "-"], "- is standard input"),
    ] {
        let output = gridhaul(arguments);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
