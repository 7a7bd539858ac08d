//! What the program finds out about devices for an administrator: `check --rdma`, and `doctor --rdma` between two ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use gridhaul_interop::guest::{Network, RIGHT, inside};
use gridhaul_interop::{Client, Finished, gridhaul_program};

use crate::path;

/// What a command has said.
struct Said(String);

impl Said {
    /// Fails unless a line begins and continues so.
    #[track_caller]
    fn says(&self, beginning: &str, words: &str) -> &Self {
        let found = self.0.lines().any(|line| {
            // The verdicts are padded.
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            line.starts_with(beginning) && line.contains(words)
        });
        assert!(found, "{beginning} ... {words} is not in {}", self.0);
        self
    }
}

/// Our program, which serves this directory.
fn program() -> Client {
    Client::new(gridhaul_program().unwrap())
}

fn check() -> Said {
    let arguments = ["check", "--rdma", "--anonymous", "--root", "/run"];
    let finished = program()
        .args(arguments)
        .args(["--anonymous-drivers", "tcp,rdma", "--listen", "127.0.0.1:0"])
        .run()
        .unwrap();
    Said(finished.output())
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn roce_devices_are_examined() {
    inside(Network::Rxe, "examined::roce_devices_are_examined", || {
        let said = check();
        for (end, address) in [("left", "10.9.0.1"), ("right", "10.9.0.2")] {
            let device = format!("rxe_{end}/1");
            said.says(
                &format!("ok rdma: provider verbs: {device}: RoCE, ACTIVE,"),
                &format!(", {address} (gid 1)"),
            );
            said.says(
                &format!("ok rdma: {device}: link: Ethernet,"),
                &format!("network interface {end}"),
            );
            for (topic, words) in [
                (
                    "mtu",
                    format!("{end} has 9000 bytes, so packets carry up to 4096"),
                ),
                ("addresses", format!("gid 1 {address} of {end} (RoCE v2)")),
                ("losses", "so rate=auto works".to_owned()),
                ("hardware", "it is made by software".to_owned()),
            ] {
                said.says(&format!("ok rdma: {device}: {topic}:"), &words);
            }
        }

        path::run("ip", "link set left mtu 1500");
        path::run("ip", "link set right down");
        check()
            .says(
                "warning rdma: rxe_left/1: mtu: left has 1500 bytes",
                "ip link set left mtu 9000",
            )
            .says("warning rdma: rxe_right/1: link:", "it is DOWN: plug in");
        for end in ["left", "right"] {
            path::run("rdma", &format!("link delete rxe_{end}"));
        }
        check().says("warning rdma: provider verbs:", "there is no RDMA device");
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn iwarp_devices_are_examined() {
    inside(Network::Siw, "examined::iwarp_devices_are_examined", || {
        let said = check();
        for end in ["left", "right"] {
            let device = format!("siw_{end}/1");
            said.says(
                &format!("ok rdma: provider verbs: {device}: iWARP, ACTIVE,"),
                "requests",
            )
            .says(
                &format!("ok rdma: {device}: losses:"),
                "TCP repeats lost packets",
            );
        }
    });
}

/// The end that listens has confined itself before it opens a device.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_path_is_measured_over_roce() {
    let name = "examined::a_path_is_measured_over_roce";
    inside(Network::Rxe, name, || {
        let there = Listening::start();
        let peer = format!("{RIGHT}:{}", there.port);
        let here = program()
            .args([
                "doctor",
                "--rdma",
                &peer,
                "--rdma-seconds",
                "1",
                "--root",
                "/run",
            ])
            .input(format!("{}\n", there.word))
            .run()
            .unwrap();
        let there = there.ended();
        is_sound(&here, &there);
    });
}

fn is_sound(here: &Finished, there: &str) {
    let said = Said(here.output());
    said.says("ok rdma: path: 10.9.0.2:", "IP packets of 9000 bytes fit")
        .says(
            "ok rdma: channel: adapters rxe_left/1 here and rxe_right/1 there, RoCE,",
            "packets of 4096 bytes",
        )
        .says("", "0 errors,");
    for trial in [
        "send with message=64K:",
        "send with message=256K:",
        "send with message=1M:",
        "receive with message=",
    ] {
        said.says(&format!("ok rdma: {trial}"), "MB/s");
    }
    assert!(!said.0.contains(": 0 MB/s"), "{}", said.0);
    assert!(here.status.success(), "{here}\n{there}");
    assert!(there.contains("has made 5 measurements"), "{there}");
}

/// An end that listens for a peer; it is killed when the value is dropped.
struct Listening {
    child: Child,
    stdout: BufReader<ChildStdout>,
    port: u16,
    word: String,
}

impl Listening {
    /// Returns when it has shown its word.
    fn start() -> Self {
        let mut child = Command::new(gridhaul_program().unwrap())
            .args(["doctor", "--rdma-listen", "--root", "/run"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (mut port, mut word) = (None, None);
        while word.is_none() {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended");
            let line = line.trim();
            if line.starts_with("gridhaul-server doctor --rdma ") {
                port = line.rsplit(':').next().and_then(|port| port.parse().ok());
            }
            word = line.strip_prefix("word: ").map(str::to_owned);
        }
        Self {
            child,
            stdout,
            port: port.expect("a command line"),
            word: word.expect("shown"),
        }
    }

    /// What it says at its end.
    fn ended(mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        text
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
