//! `doctor --rdma` and `doctor --rdma-listen`: measurements between two machines.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::doctor::{Said, taken_port};
use crate::network::Network;
use crate::program::{Running, has_root, program, public_directory};
use crate::sandbox::is_confined;

/// An end that listens for a peer; it is killed when the value is dropped.
struct Listening {
    child: Child,
    stdout: BufReader<ChildStdout>,
    port: u16,
    word: String,
}

impl Listening {
    fn start(root: &Path) -> Self {
        Self::of(listening(root))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (mut port, mut word) = (None, None);
        while word.is_none() {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).expect("UTF-8"), 0, "ended");
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
    fn ended(mut self) -> Said {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("UTF-8");
        let status = self.child.wait().expect("ended");
        Said {
            status: status.code().expect("an exit status"),
            text,
        }
    }
}

fn listening(root: &Path) -> Command {
    let mut command = program();
    command
        .args(["doctor", "--rdma-listen", "--root"])
        .arg(root);
    command
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `doctor --rdma` says with this word on its standard input.
fn measure(root: &Path, peer: &str, word: &str) -> Said {
    answered(measuring(root, peer), word)
}

fn measuring(root: &Path, peer: &str) -> Command {
    let mut command = program();
    command.args(["doctor", "--rdma", peer, "--rdma-seconds", "1", "--root"]);
    command.arg(root);
    command
}

/// What a command says that reads this line.
fn answered(mut command: Command, word: &str) -> Said {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    writeln!(stdin, "{word}").expect("it reads the word");
    let done = child.wait_with_output().expect("ended");
    Said {
        status: done.status.code().expect("an exit status"),
        text: String::from_utf8(done.stdout).expect("UTF-8"),
    }
}

#[test]
fn two_machines_measure_rdma_with_a_word() {
    let root = public_directory();
    let there = Listening::start(root.path());
    is_confined(there.child.id());
    let peer = format!("127.0.0.1:{}", there.port);
    measure(root.path(), &peer, "no word")
        .ends_with(1)
        .says("error rdma:", "the line is not a word");
    measure(root.path(), &peer, "0000-0000-0000-0000")
        .ends_with(1)
        .says("error rdma:", "accepts another word");
    let word = there.word.replace('-', "").to_uppercase();
    let said = measure(root.path(), &peer, &word);
    said.ends_with(0)
        .says(
            "ok rdma: path:",
            "ms away, and IP packets of 65535 bytes fit",
        )
        .says("warning rdma: channel:", "no adapter carries it")
        .says("ok rdma: send with message=64K:", "Gb/s); ")
        .says("ok rdma: send with message=256K:", "MB/s")
        .says("ok rdma: send with message=1M:", "MB/s")
        .says("ok rdma: receive with message=", "MB/s")
        .says("ok rdma: send with message=", ";qps=2:")
        .says("", "rdma: limit: ")
        .says("ok rdma:", "gridhaul copy --stack 'rdma")
        .says("0 errors,", "");
    assert!(!said.text.contains(": 0 MB/s"), "{}", said.text);
    there.ended().ends_with(0).says(
        "ok rdma: 127.0.0.1:",
        "has made 5 measurements (1 connection came without the word)",
    );
}

#[test]
fn peers_that_do_not_listen_for_a_word_are_named() {
    let root = public_directory();
    let word = "0000-0000-0000-0000";
    let server = Running::start(root.path(), &["--anonymous"]);
    measure(root.path(), &format!("gsiftp://{}", server.address), word)
        .ends_with(1)
        .says(
            "error rdma:",
            "is a server of FTP or GridFTP, which needs an account; run",
        );
    let (listener, _) = taken_port();
    let address = listener.local_addr().expect("bound").to_string();
    let answering = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accepted");
        let mut stream = BufReader::new(stream);
        let mut request = String::new();
        stream.read_line(&mut request).expect("a line");
        let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        stream.get_mut().write_all(answer).expect("a short answer");
    });
    measure(root.path(), &address, word)
        .ends_with(1)
        .says("error rdma:", "answers \"HTTP/1.1 400 Bad Request\"");
    answering.join().expect("no panic");
    measure(root.path(), &address, word)
        .ends_with(1)
        .says("error rdma:", "does not answer");
}

#[test]
fn of_the_rights_of_root_the_end_that_listens_keeps_that_to_lock_memory() {
    const IPC_LOCK: u64 = 14;

    if !has_root() {
        return;
    }
    let root = public_directory();
    let there = Listening::start(root.path());
    let status = fs::read_to_string(format!("/proc/{}/status", there.child.id()));
    let status = status.expect("a process");
    for set in ["CapEff", "CapPrm"] {
        let of_set =
            |line: &str| Some(line.strip_prefix(set)?.strip_prefix(":")?.trim().to_owned());
        let bits = status.lines().find_map(of_set).expect("a set");
        let bits = u64::from_str_radix(&bits, 16).expect("hexadecimal");
        assert_eq!(bits & !(1 << IPC_LOCK), 0, "{set} {bits:x}");
    }
}

/// Beyond the one that asks, with two queue pairs: each is a connection.
#[test]
fn machines_measure_over_link_local_addresses() {
    if !has_root() {
        return;
    }
    let network = Network::new("doctor", &["ip -6 addr add fe80::7/64 dev lo nodad"]);
    let root = public_directory();
    let there = Listening::of(network.command(&listening(root.path())));
    let peer = format!("[fe80::7%lo]:{}", there.port);
    let asking = network.command(&measuring(root.path(), &peer));
    answered(asking, &there.word)
        .ends_with(0)
        .says("ok rdma: send with message=64K:", "MB/s")
        .says("ok rdma: receive with message=", "MB/s")
        .says("ok rdma: send with message=", ";qps=2:");
    there
        .ended()
        .ends_with(0)
        .says("ok rdma: [fe80::7%", "has made 5 measurements:");
}
