//! Two guests as two hosts: a server in each, connected by a cable.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use gridhaul_interop::guest::{
    LEFT, LEFT_6, Neighbour, Network, Policer, RIGHT, RIGHT_6, on_two_hosts,
};
use gridhaul_interop::{Client, Finished, Pki, Server, chown_to_nobody, content};
use tempfile::TempDir;

use crate::path;
use crate::sites::{Start, copy, transfers};

/// More than a ring of the stacks below.
const BYTES: u64 = 20_000_003;

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn roce_carries_files_between_two_hosts() {
    let name = "hosts::roce_carries_files_between_two_hosts";
    on_two_hosts(Network::Rxe, name, |neighbour| {
        carries_files(neighbour, "rxe", &[WRITE, FETCH]);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn iwarp_carries_files_between_two_hosts() {
    let name = "hosts::iwarp_carries_files_between_two_hosts";
    on_two_hosts(Network::Siw, name, |neighbour| {
        // A host without an adapter interoperates with one that has it.
        neighbour.run("rdma link delete siw_right");
        let hosts = Hosts::new(neighbour, [LEFT, RIGHT]);
        hosts.copy_whole(&["-dcstack", "rdma:qps=2;mode=get", "-fast"]);
        assert!(hosts.source.log().contains("device=siw_left"));
        assert!(hosts.log_of_destination().contains("provider=soft"));
        neighbour.run("rdma link add siw_right type siw netdev right");
        carries_files(neighbour, "siw", &[WRITE, FETCH]);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn pacing_stays_below_a_policer_and_stalls_are_detected() {
    let name = "hosts::pacing_stays_below_a_policer_and_stalls_are_detected";
    on_two_hosts(Network::Rxe, name, |neighbour| {
        let hosts = Hosts::new(neighbour, [LEFT, RIGHT]);
        let policer = Policer::OfLeft;
        policer.install(400_000_000, 256 << 10).unwrap();
        hosts.copy_whole(&["-dcstack", "rdma:provider=verbs;rate=360m;message=64K"]);
        assert_eq!(policer.dropped().unwrap(), 0);
        // A message of this length exceeds the burst of the policer.
        let too_long = "rdma:provider=verbs;message=1M;stall=1s";
        let copied = hosts.copy(&["-dcstack", too_long]);
        println!("{too_long} took {:.2} s", copied.elapsed.as_secs_f64());
        assert_ne!(policer.dropped().unwrap(), 0);
        if copied.status.success() {
            hosts.is_whole();
        } else {
            let advice = "does the path drop messages that are longer than its burst";
            assert!(copied.output().contains(advice), "{copied}");
        }
        assert!(hosts.source.log().contains("stall"), "{}", hosts.logs());
        let found = "rdma:provider=verbs;message=1M;rate=auto;stall=1s";
        hosts.copy_whole(&["-dcstack", found]);
    });
}

const WRITE: &str = "rdma:provider=verbs;qps=4";
const FETCH: &str = "rdma:provider=verbs;mode=get;qps=4;slab=1M,gsi";

/// Copies over a short and a long path, with both kinds of addresses.
fn carries_files(neighbour: &Neighbour, driver: &str, stacks: &[&str]) {
    let hosts = Hosts::new(neighbour, [LEFT, RIGHT]);
    for stack in stacks {
        hosts.copy_whole(&["-dcstack", stack]);
        hosts.exchange_whole(&["-dcstack", stack]);
    }
    let delay = |end| format!("qdisc replace dev {end} root netem delay 10ms limit 100000");
    path::run("tc", &delay("left"));
    neighbour.run(&format!("tc {}", delay("right")));
    for stack in stacks {
        hosts.copy_whole(&["-dcstack", stack, "-fast", "-p", "2"]);
    }
    path::run("tc", "qdisc delete dev left root");
    neighbour.run("tc qdisc delete dev right root");
    hosts.used(driver);

    let hosts = Hosts::new(neighbour, [LEFT_6, RIGHT_6]);
    for stack in stacks {
        hosts.copy_whole(&["-ipv6", "-dcstack", stack]);
    }
    hosts.used(driver);
}

/// The reference copy of the left host's file on the right host.
const REFERENCE: &str = "/run/reference";

/// A server on each host, and the certificates of both.
struct Hosts<'a> {
    directory: TempDir,
    source: Server,
    destination: Server,
    neighbour: &'a Neighbour,
}

impl<'a> Hosts<'a> {
    /// Servers at these addresses; the first has a file.
    fn new(neighbour: &'a Neighbour, [left, right]: [&str; 2]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let root = directory.path().join("source");
        fs::create_dir(&root).unwrap();
        chown_to_nobody(&root).unwrap();
        let file = root.join("file");
        content::write(&file, BYTES).unwrap();
        neighbour.feed(&format!("cat >{REFERENCE}"), &fs::read(file).unwrap());
        give_certificates(neighbour);
        let there = directory.path().join("destination");
        let path = there.display();
        neighbour.run(&format!("mkdir -p {path} && chown nobody:nogroup {path}"));
        let far = Start {
            wrapper: neighbour.wrapper(),
            ..Start::default()
        };
        Self {
            source: Start::default().server(&root, left),
            destination: far.server(&there, right),
            directory,
            neighbour,
        }
    }

    /// Copies the file, compares it and removes the copy.
    fn copy_whole(&self, options: &[&str]) {
        let copied = self.copy(options);
        assert!(copied.status.success(), "{copied}\n{}", self.logs());
        self.is_whole();
        println!("{options:?} took {:.2} s", copied.elapsed.as_secs_f64());
    }

    /// Copies files in both directions at once, compares them and removes the copies.
    fn exchange_whole(&self, options: &[&str]) {
        let there = self.directory.path().join("destination/file");
        self.neighbour
            .run(&format!("cp {REFERENCE} {}", there.display()));
        let back = [self.destination.address(), self.source.address()];
        let (there, back) = thread::scope(|scope| {
            let back = scope.spawn(|| copy(back, options));
            (self.copy(options), back.join().unwrap())
        });
        for copied in [&there, &back] {
            assert!(copied.status.success(), "{copied}\n{}", self.logs());
        }
        self.is_whole();
        let source = self.directory.path().join("source");
        content::same(&source.join("file"), &source.join("copy")).unwrap();
        fs::remove_file(source.join("copy")).unwrap();
        let [there, back] = [there, back].map(|copied| copied.elapsed.as_secs_f64());
        println!("{options:?} took {there:.2} s, and back {back:.2} s");
    }

    fn copy(&self, options: &[&str]) -> Finished {
        copy([self.source.address(), self.destination.address()], options)
    }

    /// Compares the copy with the file, and removes it.
    fn is_whole(&self) {
        let copy = self.directory.path().join("destination/copy");
        let copy = copy.display();
        let compare = format!("cmp {copy} {REFERENCE} && rm {copy}");
        self.neighbour.run(&compare);
    }

    /// Fails unless each end has used its own device of this driver.
    fn used(&self, driver: &str) {
        let source = self.source.log();
        let destination = self.log_of_destination();
        for (end, log) in [("left", source), ("right", destination)] {
            let finished = transfers(&log);
            assert!(!finished.is_empty(), "{log}");
            for line in finished {
                assert!(line.contains(&format!("device={driver}_{end}")), "{line}");
            }
        }
    }

    fn logs(&self) -> String {
        [self.source.log(), self.log_of_destination()].join("\n")
    }

    /// The standard error of the server on the right host.
    fn log_of_destination(&self) -> String {
        self.neighbour.run(&format!("cat {}", Neighbour::ERRORS))
    }
}

/// Copies the certificates to the right host.
fn give_certificates(neighbour: &Neighbour) {
    let directory = Pki::shared().unwrap().trust();
    let directory = directory.parent().unwrap();
    let archive = Client::new("tar").args(["-c", "-C", "/"]);
    let archive = archive
        .arg(directory.strip_prefix("/").unwrap())
        .run()
        .unwrap();
    assert!(archive.status.success(), "{archive}");
    neighbour.feed("tar -x -C /", &archive.stdout);
}
