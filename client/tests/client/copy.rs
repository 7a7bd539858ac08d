//! Single files with our server and the real one: in both modes, with each protection, over the drivers.

use std::fs;
use std::time::{Duration, Instant};

use gridhaul_interop::{Kind, content};

use crate::site::{Site, assert_same, texts};

#[test]
fn anonymous_users_copy_in_both_modes() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        site.round(&[], "stream");
        site.round(&["--parallel", "4"], "blocks");
    }
}

#[test]
fn options_may_stand_between_source_and_destination() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", "--quiet", &url]);
    site.must(&["copy", &url, "--mode", "stream", "copy"]);
    assert_same(&site.local("source"), &site.local("copy"), &[]);
    let alone = site.gridhaul(&["copy", "--quiet", &url]);
    assert_eq!(alone.status.code(), Some(2));
    let (_, errors) = texts(&alone);
    assert!(errors.contains("the destination is missing"), "{errors}");
}

#[test]
fn data_channels_have_the_wanted_protection() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        for (index, protection) in [&["--dcau", "none"][..], &[], &["--protect"]]
            .into_iter()
            .enumerate()
        {
            site.round(protection, &format!("stream{index}"));
            let blocks = [protection, &["--parallel", "3"]].concat();
            site.round(&blocks, &format!("blocks{index}"));
        }
    }
}

#[test]
fn a_checksum_is_that_of_both_ends() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let lines = site.must(&["copy", "--json", "--checksum", "md5", "source", &url]);
    let sum = site.must(&["sum", "md5", &url]);
    let (value, named) = sum.trim().split_once("  ").expect("VALUE  URL");
    assert_eq!(named, url);
    assert!(
        lines.contains(&format!(r#""checksum":"{value}""#)),
        "{lines}"
    );
    let events = lines
        .lines()
        .map(|line| line.split('"').nth(3).unwrap_or_default());
    let events: Vec<_> = events.filter(|event| *event != "progress").collect();
    assert_eq!(events, ["start", "file", "done"], "{lines}");
}

#[test]
fn names_with_control_characters_are_json_and_control_no_terminal() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    // DEL, and what the bytes of a name in Latin-1 can be taken for.
    let name = "a\x7f\u{9b}2Jb";
    let lines = texts(&site.gridhaul(&["copy", "--json", name, &site.server.url("a")])).0;
    assert!(
        !lines.contains(|one: char| one.is_control() && one != '\n'),
        "{lines:?}"
    );
    let events = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<serde_json::Value> = events.collect();
    assert!(
        events.iter().any(|event| event["source"] == name),
        "{events:?}"
    );
}

#[test]
fn a_copy_that_fails_leaves_no_file_and_says_which_end_refused() {
    let site = Site::anonymous(Kind::Gridhaul, &["--allowed-drivers", "tcp"]);
    let missing = site.server.url("missing");
    let error = site.fails(&["copy", &missing, "back"]);
    assert!(error.contains("No such file"), "{error}");
    assert!(!site.local("back").exists());
    let error = site.fails(&["copy", "source", &site.server.url("no/directory")]);
    assert!(
        error.contains("destination: the server refused STOR"),
        "{error}"
    );
    let error = site.fails(&["copy", "missing", &missing]);
    assert!(error.contains("missing: No such file"), "{error}");
    let several = ["copy", "missing", "source", &site.server.url("")];
    let error = site.fails(&several);
    assert!(error.contains("missing"), "{error}");
    assert_same(&site.local("source"), &site.served("source"), &[]);
}

#[test]
fn a_copy_that_would_destroy_another_one_is_refused() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    site.must(&["copy", "source", &url]);
    let error = site.fails(&["copy", &url, &url]);
    assert!(error.contains("the same file"), "{error}");
    assert_same(&site.local("source"), &site.served("a"), &[]);
    fs::create_dir(site.local("other")).unwrap();
    fs::write(site.local("other/source"), "another").unwrap();
    let several = ["copy", "source", "other/source", &site.server.url("")];
    let error = site.fails(&several);
    assert!(error.contains("another source"), "{error}");
    assert_same(&site.local("source"), &site.served("source"), &[]);
}

#[test]
fn the_certificate_must_be_that_of_the_host() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let error = site.fails(&["copy", "--subject", "/CN=another", "source", &url]);
    assert!(error.contains("presents the certificate of"), "{error}");
    assert!(!site.served("a").exists());
}

#[test]
fn both_ends_use_the_stack_that_is_named() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    for stack in ["tcp", "splice", "rdma"] {
        site.round(&["--stack", stack, "--parallel", "2"], stack);
        site.round(
            &["--stack", stack, "--protect"],
            &format!("{stack}-private"),
        );
    }
    let output = site.gridhaul(&["copy", "--stack", "tpc", "source", &site.server.url("a")]);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--stack tpc"), "{stderr}");
}

#[test]
fn a_rate_limits_all_files_together() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = |name: &str| site.server.url(name);
    fs::create_dir(site.local("tree")).unwrap();
    for name in ["tree/a", "tree/b"] {
        content::write(&site.local(name), 3_000_000).unwrap();
    }
    let tree = site.local("tree");
    let limited = ["copy", "-r", "--rate", "2M"];
    for (from, to) in [
        (tree.to_str().unwrap(), &*url("put")),
        (&*url("put"), "got"),
    ] {
        let began = Instant::now();
        site.must(&[&limited[..], &[from, to]].concat());
        let took = began.elapsed();
        // 6 MB take 3 s; the first bytes of a limit are free.
        assert!(took > Duration::from_millis(2000), "{took:?}");
    }
    let error = site.fails(&["copy", "--rate", "2M", &url("put/a"), &url("third")]);
    assert!(error.contains("--stack tcp:rate="), "{error}");
}
