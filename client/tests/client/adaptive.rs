//! `--parallel auto`.

use std::fs::{self, File};

use gridhaul_interop::Kind;
use serde_json::Value;

use crate::site::Site;

/// The channels of all files, in the order of their ends.
fn channels(output: &str) -> Vec<u64> {
    let lines = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let files = lines.filter(|event: &Value| event["event"] == "file");
    files
        .map(|event| event["channels"].as_u64().unwrap())
        .collect()
}

#[test]
fn the_number_of_connections_grows_with_the_rate() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir(site.local("tree")).unwrap();
    for number in 0..16 {
        let file = File::create(site.local(&format!("tree/{number}"))).unwrap();
        file.set_len(5_000_000).unwrap();
    }
    // 1 MB a second for each connection, and 4 MB a second for all of them: 4 connections are worth it. Rates so low need little
    // processor time, so that other load changes them little.
    let output = site.must(&[
        "copy",
        "-r",
        "-c",
        "1",
        "--json",
        "--streams",
        "auto",
        "--stack",
        "tcp:rate=8m",
        "--rate",
        "4M",
        "tree",
        &site.server.url("copy"),
    ]);
    let channels = channels(&output);
    assert_eq!((channels.len(), channels[0]), (16, 1), "{channels:?}");
    // The property tests of the law say where it stops. Here other load changes rates while they are measured.
    assert!(channels.iter().any(|&count| count >= 4), "{channels:?}");
    assert!(channels.iter().all(|&count| count <= 32), "{channels:?}");
}

#[test]
fn both_servers_take_files_with_the_numbers_of_auto() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        site.round(&["--parallel", "auto"], "a");
    }
}
