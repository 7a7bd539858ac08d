//! `--parallel auto`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use gridhaul_interop::Kind;
use serde_json::Value;

use crate::site::Site;

/// The channels of a file that was copied, if the line says that.
fn channels(line: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(line).unwrap();
    (event["event"] == "file").then(|| event["channels"].as_u64().unwrap())
}

/// Starts a copy, and ends it when the channels of its files so far are as wanted. Returns these, in the order of their ends.
fn channels_until(site: &Site, arguments: &[&str], is_wanted: impl Fn(&[u64]) -> bool) -> Vec<u64> {
    let mut command = site.command(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut found = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        found.extend(channels(&line.unwrap()));
        if is_wanted(&found) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    found
}

/// A busy machine changes rates while they are measured, and makes the search longer: the test waits for what it finds. The property
/// tests of the law say where it stops.
#[test]
fn the_number_of_connections_grows_with_the_rate_and_no_further() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir(site.local("tree")).unwrap();
    // Many more than are needed.
    for number in 0..100 {
        let file = File::create(site.local(&format!("tree/{number}"))).unwrap();
        file.set_len(8_000_000).unwrap();
    }
    // 1 MB a second for each connection, and 4 MB a second for all of them: 4 connections are worth it, and more are not. Rates so
    // low need little processor time.
    let copy = [
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
    ];
    let most = |found: &[u64]| found.iter().copied().max().unwrap_or(0);
    let has_come_back = |found: &[u64]| most(found) >= 4 && found.last() < Some(&most(found));
    let found = channels_until(&site, &copy, has_come_back);
    assert_eq!(found.first(), Some(&1), "{found:?}");
    let doubles = |pair: &[u64]| pair[1] <= 2 * pair[0];
    assert!(found.windows(2).all(doubles), "{found:?}");
    assert!(has_come_back(&found), "{found:?}");
}

#[test]
fn both_servers_take_files_with_the_numbers_of_auto() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        site.round(&["--parallel", "auto"], "a");
    }
}
