//! A peer that is not this program: it speaks the protocol of the driver `rdma` with pyverbs, rightly and wrongly.

use gridhaul_interop::guest::{LEFT, Network, RIGHT, inside};
use gridhaul_interop::{Client, Finished, chown_to_nobody, content};
use gridhaul_rdma::PROTOCOL_VERSION;

use crate::sessions::{metrics, server};

/// More than all rings of the peer.
const BYTES: u64 = 6_000_017;

/// The cases of the peer, and words of the server's last reply to each.
const CASES: [(&str, &str); 23] = [
    ("put", "226 "),
    ("get", "226 "),
    ("get-into-a-longer-ring", "226 "),
    ("wrong-key", "the data channel failed"),
    ("wrong-key-then-silence", "stall"),
    ("behind-the-ring", "the data channel failed"),
    ("across-the-end-of-the-ring", "the data channel failed"),
    ("before-the-ring", "the data channel failed"),
    ("position-beyond-credit", "and had credit up to"),
    ("position-twice", "announced bytes twice, from 500 to 1500"),
    ("empty-piece", "announced an empty piece"),
    ("unknown-message", "a message of the unknown kind 99"),
    ("end-before-data", "ended the stream at byte 10"),
    ("credit-too-large", "claims to have consumed"),
    (
        "ring-of-a-channel-that-does-not-grow",
        "which was not negotiated",
    ),
    ("ring-out-of-turn", "offered ring 7, which was not due"),
    ("ring-that-is-too-short", "offered a ring of 1 bytes"),
    ("move-to-no-ring", "to ring 1, which it was not offered"),
    ("longer-ring-with-a-wrong-key", "the data channel failed"),
    ("silence-in-handshake", "the transfer stalled"),
    ("silence", "stall"),
    ("other-address", "stall"),
    ("other-version", "stall"),
];

/// What the log says of data connections that are refused, while the server waits for another one.
const REFUSED: [&str; 2] = [
    "the adapter of the other end has the address 10.9.0.77",
    "the other end speaks version",
];

/// After each wrong case the peer stores a part of the file rightly. In the end no channel has memory.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_foreign_peer_is_served_and_its_lies_end_one_transfer_each() {
    let name = "foreign::a_foreign_peer_is_served_and_its_lies_end_one_transfer_each";
    inside(Network::Rxe, name, || {
        let directory = tempfile::tempdir().unwrap();
        chown_to_nobody(directory.path()).unwrap();
        let file = directory.path().join("file");
        content::write(&file, BYTES).unwrap();
        let limits = ["--stall-timeout", "3", "--data-timeout", "6"];
        let server = server(directory.path(), RIGHT, &limits);
        let [host, port] = [
            server.address().ip().to_string(),
            server.address().port().to_string(),
        ];
        let finished = peer()
            .args([&PROTOCOL_VERSION.to_string(), LEFT, &host, &port])
            .arg(&file)
            .args(CASES.map(|(case, _)| case))
            .run()
            .unwrap();
        let log = server.log();
        answered(&finished, &log);
        for words in REFUSED {
            assert!(log.contains(words), "{words}: {log}");
        }
        for copy in ["put", "meanwhile"] {
            content::same(&file, &directory.path().join(copy)).unwrap();
        }
        let page = metrics(&server);
        for sample in [
            "gridhaul_rdma_channels 0",
            "gridhaul_rdma_ring_bytes{state=\"used\"} 0",
        ] {
            assert!(page.lines().any(|line| line == sample), "{sample}: {page}");
        }
    });
}

/// Every case has had the reply of the table.
fn answered(finished: &Finished, log: &str) {
    let output = String::from_utf8_lossy(&finished.stdout).into_owned();
    let replies: Vec<(&str, &str)> = output
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect();
    for (number, (case, words)) in CASES.iter().enumerate() {
        let answer = replies.get(number).filter(|(name, _)| name == case);
        let (_, reply) = answer.unwrap_or_else(|| panic!("{case}: {finished}\n{log}"));
        println!("{case}: {reply}");
        assert!(reply.contains(words), "{case}: {reply}\n{log}");
    }
    assert!(finished.status.success(), "{finished}\n{log}");
}

/// The program, run by Debian's own Python, for which pyverbs is installed.
fn peer() -> Client {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rdma_peer.py");
    Client::new("/usr/bin/python3").args(["-B", script])
}

#[test]
#[ignore = "needs pyverbs: make test-rdma"]
fn every_case_of_the_peer_has_an_answer() {
    let finished = peer().arg("--list").run().unwrap();
    let listed = CASES.map(|(case, _)| case).join("\n");
    assert_eq!(finished.output().trim(), listed);
}
