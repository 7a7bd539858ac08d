//! The program `gridhaul` over RDMA devices: puts, gets, and copies between two servers.

use std::fs;

use gridhaul_interop::guest::{Network, inside};
use gridhaul_interop::{Finished, HOST, content};

use crate::sites::Sites;

/// More than a ring of the stacks below.
const BYTES: u64 = 20_000_003;

/// Small files that are copied together.
const FILES: usize = 20;

/// The sender writes, and the receiver reads.
const STACKS: [&str; 2] = [
    "rdma:provider=verbs",
    "rdma:provider=verbs;mode=get;qps=2;slab=1M",
];

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn roce_carries_files_of_the_client() {
    let name = "client::roce_carries_files_of_the_client";
    inside(Network::Rxe, name, || carries_files("rxe"));
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn iwarp_carries_files_of_the_client() {
    let name = "client::iwarp_carries_files_of_the_client";
    inside(Network::Siw, name, || carries_files("siw"));
}

fn carries_files(driver: &str) {
    let sites = Sites::new(BYTES);
    ping(&sites, driver);
    for stack in STACKS {
        put_and_get(&sites, stack);
        between(&sites, stack);
    }
    trees(&sites);
    // Each server has used the device of its own end only.
    let [left, right] = sites.transfers();
    for (end, finished) in [("left", left), ("right", right)] {
        assert!(!finished.is_empty(), "{}", sites.logs());
        let device = format!("device={driver}_{end}/1");
        let is_listing = |line: &str| line.contains("MLSD");
        for line in finished.iter().filter(|line| !is_listing(line)) {
            assert!(line.contains(&device), "{line}");
        }
    }
}

fn must(sites: &Sites, arguments: &[&str]) -> Finished {
    // The URLs have addresses, which the host certificate does not contain.
    let finished = sites.gridhaul(&[arguments, &["--subject", HOST]].concat());
    assert!(finished.status.success(), "{finished}\n{}", sites.logs());
    println!("{arguments:?} took {:.2} s", finished.elapsed.as_secs_f64());
    finished
}

/// A stream from the server to the client, then MODE E, in which the receiver listens.
fn put_and_get(sites: &Sites, stack: &str) {
    let [left, right] = sites.urls("put");
    must(sites, &["rput", "--stack", stack, "source/file", &right]);
    content::same(&sites.source(), &sites.local("destination/put")).unwrap();
    must(sites, &["rput", "--stack", stack, "source/file", &left]);
    for mode in ["stream", "extended"] {
        for url in [&left, &right] {
            must(
                sites,
                &["rget", "--stack", stack, "--mode", mode, url, "got"],
            );
            sites.is_same("got");
        }
    }
}

/// Both directions, and with the checksums of both servers.
fn between(sites: &Sites, stack: &str) {
    let [source, _] = sites.urls("file");
    let [back, copy] = sites.urls("copy");
    must(
        sites,
        &[
            "copy",
            "--stack",
            stack,
            "--checksum",
            "MD5",
            &source,
            &copy,
        ],
    );
    must(sites, &["copy", "--stack", stack, "-p", "2", &copy, &back]);
    for copy in ["destination/copy", "source/copy"] {
        sites.is_same(copy);
    }
}

/// Small files share the queue pairs of their session.
fn trees(sites: &Sites) {
    let tree = sites.local("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(number.to_string()), vec![7; number * 1000]).unwrap();
    }
    let [_, there] = sites.urls("tree");
    must(sites, &["rput", "-r", "-c", "1", "tree", &there]);
    must(sites, &["rget", "-r", "-c", "1", &there, "back"]);
    for number in 0..FILES {
        let name = number.to_string();
        content::same(&tree.join(&name), &sites.local("back").join(&name)).unwrap();
    }
}

/// What each end has chosen, and the devices of this machine.
fn ping(sites: &Sites, driver: &str) {
    let [left, _] = sites.urls("");
    let output = must(sites, &["ping", &left]).output();
    for part in [
        format!("  here       provider verbs, device {driver}_right/1"),
        format!("  server     provider verbs, device {driver}_left/1"),
        format!("  this has   provider verbs: {driver}_left/1"),
    ] {
        assert!(output.contains(&part), "{part}: {output}");
    }
}
