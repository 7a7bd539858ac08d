//! `gridhaul rput` and `gridhaul rget`: copies over RDMA, whose queue pairs serve many files.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use gridhaul_interop::Kind;

use crate::scripted::gridhaul;
use crate::site::{Site, assert_same, texts};

const FILES: u64 = 40;

/// A server that offers RDMA to anonymous users, and the address where it says how many queue pairs it has connected.
fn site() -> (Site, SocketAddr) {
    let drivers = ["--anonymous-drivers", "auto,tcp,rdma"];
    let metrics = ["--metrics-listen", "127.0.0.1:0"];
    let site = Site::anonymous(Kind::Gridhaul, &[drivers, metrics].concat());
    let metrics = site.server.metrics_address().unwrap();
    (site, metrics)
}

/// Small files, and one that is longer than what pipelines take.
fn fill(place: &Path) {
    fs::create_dir_all(place.join("sub")).unwrap();
    for number in 0..FILES {
        fs::write(place.join(name(number)), content(number)).unwrap();
    }
}

fn name(number: u64) -> String {
    match number % 3 {
        0 => format!("sub/f{number}"),
        _ => format!("f{number}"),
    }
}

fn content(number: u64) -> Vec<u8> {
    let size = match number {
        7 => 5_000_003,
        _ => number * 1009,
    };
    (0..size)
        .map(|place| (place * 7 + number).to_le_bytes()[0])
        .collect()
}

fn assert_filled(place: &Path) {
    for number in 0..FILES {
        let found = fs::read(place.join(name(number)));
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", name(number)));
        assert!(found == content(number), "{}", name(number));
    }
}

/// The queue pairs that the server has connected.
fn queue_pairs(metrics: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(metrics).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let sample = "gridhaul_rdma_queue_pairs_total ";
    let count = page.lines().find_map(|line| line.strip_prefix(sample));
    count.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

/// Transfers of the log with this verb.
fn logged(site: &Site, verb: &str) -> u64 {
    let verb = format!("verb=\"{verb}\"");
    let log = site.server.log();
    log.lines().filter(|line| line.contains(&verb)).count() as u64
}

#[test]
fn the_files_of_a_tree_share_a_queue_pair() {
    let (site, metrics) = site();
    fill(&site.local("tree"));
    let (there, back) = (site.server.url("there"), "back");
    let mut known = 0;
    let mut made = || {
        let before = std::mem::replace(&mut known, queue_pairs(metrics));
        known - before
    };
    site.must(&["rput", "-r", "-c", "1", "tree", &there]);
    assert_filled(&site.served("there"));
    assert_eq!(made(), 1);
    site.must(&["rget", "-r", "-c", "1", &there, back]);
    assert_filled(&site.local(back));
    assert_eq!(made(), 1);
    // Each worker has its own.
    site.must(&["rput", "-r", "-c", "3", "tree", &site.server.url("three")]);
    assert_filled(&site.served("three"));
    assert!((1..=3).contains(&made()));
    // In stream mode the end of the file is that of its channel.
    let url = site.server.url("streams");
    site.must(&["rput", "-r", "-c", "1", "--mode", "stream", "tree", &url]);
    assert_filled(&site.served("streams"));
    assert_eq!(made(), FILES);
    assert_eq!(logged(&site, "RSTR"), 3 * FILES);
    assert_eq!(logged(&site, "RRTR"), FILES);
}

#[test]
fn the_other_commands_stay_with_tcp() {
    let (site, metrics) = site();
    let url = site.server.url("a");
    site.must(&["rput", "source", &url]);
    assert_same(&site.local("source"), &site.served("a"), &[]);
    let made = queue_pairs(metrics);
    site.must(&["copy", "source", &site.server.url("b")]);
    site.must(&["copy", "source", &site.server.url("c/"), "--create-dirs"]);
    assert_eq!(queue_pairs(metrics), made);
    // A part goes to a port for RDMA by the usual commands.
    site.must(&["rget", "--offset", "1000", "--length", "9", &url, "part"]);
    let source = fs::read(site.local("source")).unwrap();
    let part = fs::read(site.local("part")).unwrap();
    assert!(part[1000..] == source[1000..1009]);
    assert_eq!(queue_pairs(metrics), made + 1);
}

#[test]
fn options_of_the_driver_and_of_copies_hold() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let stack = "rdma:provider=soft;slab=64K;slabs=3;message=16K;qps=2";
    for options in [
        &["--stack", stack][..],
        &["--stack", stack, "-p", "2", "--checksum", "md5"],
        &["--protect"],
        &["--dcau", "none", "--stack", stack],
    ] {
        site.must(&[&["rput"], options, &["source", &url]].concat());
        assert_same(&site.local("source"), &site.served("a"), options);
        site.must(&[&["rget"], options, &[&url, "back"]].concat());
        assert_same(&site.local("source"), &site.local("back"), options);
        fs::remove_file(site.local("back")).unwrap();
    }
    let log = site.server.log();
    for part in ["provider=soft", "queue-pairs=2", "ring-bytes=196608"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let mut put = site.command(&["rput", "-", &site.server.url("piped")]);
    let source = File::open(site.local("source")).unwrap();
    let output = put.stdin(source).output().unwrap();
    assert!(output.status.success(), "{:?}", texts(&output));
    assert_same(&site.local("source"), &site.served("piped"), &[]);
    let got = site.gridhaul(&["rget", &url, "-"]);
    assert!(
        got.stdout == fs::read(site.local("source")).unwrap(),
        "{:?}",
        texts(&got).1
    );
}

#[test]
fn a_server_without_rdma_is_named_and_used_over_tcp_only_if_that_is_wanted() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fill(&site.local("tree"));
        let url = site.server.url("a");
        let error = site.fails(&["rput", "source", &url]);
        assert!(error.contains("there is no RADR in its FEAT"), "{error}");
        assert!(error.contains("--or-tcp"), "{error}");
        assert!(!site.served("a").exists());
        let url = site.server.url("tree");
        let put = site.gridhaul(&["rput", "-r", "--or-tcp", "tree", &url]);
        let (_, stderr) = texts(&put);
        assert!(put.status.success(), "{stderr}");
        let note = "its files are copied over TCP";
        assert_eq!(stderr.matches(note).count(), 1, "{stderr}");
        assert_filled(&site.served("tree"));
        site.must(&["rget", "-r", "--or-tcp", &url, "back"]);
        assert_filled(&site.local("back"));
    }
}

#[test]
fn the_way_and_the_driver_are_those_of_the_name() {
    let url = "ftp://127.0.0.1:1/a";
    for (arguments, expected) in [
        (&["rput", url, "a"][..], "the last word is a URL"),
        (&["rput", url, url], "gridhaul copy --stack rdma"),
        (&["rput", "a", "b"], "the last word is a URL"),
        (&["rget", "a", url], "all words but the last"),
        (&["rget", url, url], "gridhaul copy --stack rdma"),
        (&["rput", "--stack", "tcp", "a", url], "give --stack rdma"),
        (&["rget", "--stack", "rdma:x=1", url, "a"], "rdma:x=1"),
    ] {
        let output = gridhaul(arguments);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("list");
    fs::write(&list, format!("a {url}\n{url} b\n")).unwrap();
    let output = gridhaul(&["rput", "--from-file", list.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{:?}", texts(&output));
}
