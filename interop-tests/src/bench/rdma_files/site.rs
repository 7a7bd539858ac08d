//! Two servers, the files of both and of the clients, and one run of clients.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::baselines::Cost;
use super::logged;
use crate::bench::files::empty;
use crate::bench::sample::gigabytes;
use crate::bench::testbed::RunError;
use crate::support::guest_network::{LEFT, RIGHT};
use crate::support::scratch::Scratch;
use crate::support::usage::{ProcessTree, busy_time};
use crate::support::{Client, Kind, Launch, Server, content, gridhaul_client};

/// The time limit for a client.
const LIMIT: Duration = Duration::from_secs(60);

/// The drivers that are measured, for anonymous users.
const DRIVERS: &str = "auto,tcp,splice,rdma";

/// Which way files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From a server to the client.
    Get,
    /// From the client to a server.
    Put,
    /// Between two servers.
    Between,
}

/// The addresses of both ends of a guest's cable.
pub(super) fn ends_of_cable() -> [IpAddr; 2] {
    [LEFT, RIGHT].map(|address| address.parse().expect("an address of ours"))
}

/// Two servers and a client program.
#[derive(Debug)]
pub(super) struct Site {
    program: PathBuf,
    /// Bytes of all files of a run.
    bytes: u64,
    servers: [Server; 2],
    // The last field, so that the servers end before their files are removed.
    scratch: Scratch,
}

/// What the clients of a run copy.
#[derive(Debug, Clone, Copy)]
struct Files {
    /// Each client has one.
    count: usize,
    bytes_of_each: u64,
}

/// What a run of clients took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Megabytes per second of whole commands, of all clients together.
    pub(super) rate: f64,
    /// The same of the transfer itself, where that was looked up ([`Site::run_one`]), or of further bytes (`two_lengths`).
    pub(super) moving: f64,
    /// Processor seconds of the clients for 10^9 bytes.
    pub(super) clients: f64,
    /// The same of the servers.
    pub(super) servers: f64,
    /// Processor seconds of the whole machine for 10^9 bytes, with those of its kernel.
    pub(super) machine: f64,
}

impl Way {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Get, Self::Put, Self::Between];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Between => "between two servers",
        }
    }

    /// Transfers of each server for one file.
    fn transfers(self) -> [usize; 2] {
        match self {
            Self::Get | Self::Put => [1, 0],
            Self::Between => [1, 1],
        }
    }
}

impl Files {
    /// Of all of them.
    fn bytes(self) -> u64 {
        self.bytes_of_each * self.count as u64
    }
}

impl Run {
    /// Without clients and servers.
    pub(super) fn of(cost: Cost) -> Self {
        Self {
            rate: cost.rate,
            moving: cost.rate,
            clients: 0.0,
            servers: 0.0,
            machine: cost.processor,
        }
    }

    /// Processor seconds of all processes for 10^9 bytes.
    pub(super) fn processor(&self) -> f64 {
        self.clients + self.servers
    }
}

impl Site {
    /// Both servers on loopback, and files in memory.
    ///
    /// # Errors
    ///
    /// When they cannot be made.
    pub(super) fn on_loopback(bytes: u64) -> Result<Self, RunError> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self::new(Path::new("/dev/shm"), [loopback; 2], &[], bytes)
    }

    /// Servers at these addresses with files on a disk: copies are complete when they are on it, and clients choose whether they go
    /// past the page cache.
    ///
    /// # Errors
    ///
    /// When they cannot be made.
    pub(super) fn on_disk(
        beneath: &Path,
        addresses: [IpAddr; 2],
        bytes: u64,
    ) -> Result<Self, RunError> {
        // io_uring is allowed only where the server's own stack asks for it.
        const OPTIONS: [&str; 6] = [
            "--sync-files",
            "data",
            "--stack",
            "splice:direct=1",
            "--client-options",
            "splice:direct,rdma:direct;provider;message",
        ];
        Self::new(beneath, addresses, &OPTIONS, bytes)
    }

    /// Servers at these addresses with these options, with files beneath a directory.
    ///
    /// # Errors
    ///
    /// When they cannot be made.
    pub(super) fn new(
        beneath: &Path,
        addresses: [IpAddr; 2],
        options: &[&str],
        bytes: u64,
    ) -> Result<Self, RunError> {
        let program = gridhaul_client().map_err(|error| RunError::Failed(error.to_string()))?;
        if !program.exists() {
            let words = format!("{} was not built", program.display());
            return Err(RunError::Failed(words));
        }
        let scratch = Scratch::beneath(beneath)?;
        fs::create_dir(scratch.path().join("down"))?;
        fs::create_dir_all(scratch.path().join("served/up"))?;
        let open = Permissions::from_mode(0o777);
        fs::set_permissions(scratch.path().join("served/up"), open)?;
        let root = scratch.path().join("served");
        let start = |address| {
            let launch = Launch::new(Kind::Gridhaul, &root).address(address);
            let launch = launch.arg("--anonymous-drivers").arg(DRIVERS);
            options
                .iter()
                .fold(launch, |launch, option| launch.arg(option))
                .start()
        };
        let [first, second] = addresses;
        Ok(Self {
            program,
            bytes,
            servers: [start(first)?, start(second)?],
            scratch,
        })
    }

    /// Runs so many clients at a time, each with a file of its own, and checks their copies.
    ///
    /// # Errors
    ///
    /// When a client fails, in one line.
    pub(super) fn run(&self, way: Way, stack: &str, clients: usize) -> Result<Run, String> {
        self.run_files(way, stack, self.files(clients))
    }

    /// Runs one client with a file of this length.
    ///
    /// # Errors
    ///
    /// As [`Site::run`].
    pub(super) fn run_length(&self, way: Way, stack: &str, bytes: u64) -> Result<Run, String> {
        let file = Files {
            count: 1,
            bytes_of_each: bytes,
        };
        self.run_files(way, stack, file)
    }

    fn run_files(&self, way: Way, stack: &str, files: Files) -> Result<Run, String> {
        let run = self.try_run(way, stack, files);
        // Copies that were not complete must not count for the next run.
        let cleared = self.clear();
        let (run, (count, bytes)) = run
            .and_then(|run| Ok((run, cleared?)))
            .map_err(|error| one_line(&error))?;
        match (count, bytes) == (files.count, files.bytes()) {
            true => Ok(run),
            false => Err(format!("{count} files of {bytes} bytes arrived")),
        }
    }

    /// Runs one client, and looks up the rate of the transfer itself.
    ///
    /// # Errors
    ///
    /// When the client fails, or a server does not log the transfer, in one line.
    pub(super) fn run_one(&self, way: Way, stack: &str) -> Result<Run, String> {
        let before = self.logged().map(|transfers| transfers.len());
        let run = self.run(way, stack, 1)?;
        let seconds = self.seconds(way, before)?;
        Ok(Run {
            moving: gigabytes(self.bytes) * 1000.0 / seconds,
            ..run
        })
    }

    /// The time of the last transfer, which follows so many earlier ones in the log of each server.
    fn seconds(&self, way: Way, before: [usize; 2]) -> Result<f64, String> {
        /// How long a line may take to the log after the reply.
        const LATE: Duration = Duration::from_secs(5);
        let started = Instant::now();
        loop {
            let ends = self.logged().into_iter().zip(before).zip(way.transfers());
            let new = ends.map(|((transfers, before), wanted)| {
                let new = transfers.get(before..).unwrap_or_default().to_vec();
                (new.len() == wanted).then_some(new)
            });
            if let Some(new) = new.collect::<Option<Vec<_>>>() {
                let seconds = new.into_iter().flatten().reduce(f64::max);
                return seconds
                    .filter(|seconds| *seconds > 0.0)
                    .ok_or_else(|| "a transfer took no time".to_owned());
            }
            if started.elapsed() > LATE {
                return Err("the servers did not log the transfer".to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The seconds of each transfer in the log of each server.
    fn logged(&self) -> [Vec<f64>; 2] {
        self.servers
            .each_ref()
            .map(|server| logged::seconds(&server.log()))
    }

    /// Drops the file of so many clients from the page cache, and writes what is in it to the disk.
    ///
    /// # Errors
    ///
    /// When the file cannot be made, in one line.
    pub(super) fn cool(&self, clients: usize) -> Result<(), String> {
        let dropped = self.source(self.files(clients)).and_then(|name| {
            rustix::fs::sync();
            let file = File::open(self.scratch.path().join("served").join(name))?;
            Ok(fadvise(file, 0, None, Advice::DontNeed).map_err(io::Error::from)?)
        });
        dropped.map_err(|error| one_line(&error))
    }

    fn try_run(&self, way: Way, stack: &str, files: Files) -> Result<Run, RunError> {
        let source = self.source(files)?;
        let here = ProcessTree::of(std::process::id());
        let servers = || {
            let trees = self
                .servers
                .each_ref()
                .map(|one| ProcessTree::of(one.pid()));
            trees.map(ProcessTree::processor_time).iter().sum()
        };
        let (all_before, servers_before): (Duration, Duration) = (here.processor_time(), servers());
        let machine_before = busy_time()?;
        let started = Instant::now();
        let finished: Vec<_> = thread::scope(|scope| {
            let start = |number| {
                let (source, client) = (&source, Client::new(&self.program));
                scope.spawn(move || {
                    let (from, to) = self.ends(way, source, number);
                    client
                        .args(["copy", "--quiet", "--retry", "0", "--stack", stack])
                        .arg(from)
                        .arg(to)
                        .time_limit(LIMIT)
                        .run()
                })
            };
            let clients: Vec<_> = (0..files.count).map(start).collect();
            clients.into_iter().map(|client| client.join()).collect()
        });
        let elapsed = started.elapsed();
        let servers = servers().saturating_sub(servers_before);
        let all = here.processor_time().saturating_sub(all_before);
        let machine = busy_time()?.saturating_sub(machine_before);
        for client in finished {
            let client =
                client.map_err(|_| RunError::Failed("a thread ended early".to_owned()))??;
            if !client.status.success() {
                return Err(RunError::Failed(client.to_string()));
            }
        }
        let gigabytes = gigabytes(files.bytes());
        let per_gigabyte = |time: Duration| time.as_secs_f64() / gigabytes;
        let rate = gigabytes * 1000.0 / elapsed.as_secs_f64();
        Ok(Run {
            rate,
            moving: rate,
            clients: per_gigabyte(all.saturating_sub(servers)),
            servers: per_gigabyte(servers),
            machine: per_gigabyte(machine),
        })
    }

    /// The source and the destination of a client.
    fn ends(&self, way: Way, source: &str, number: usize) -> (String, String) {
        let [first, second] = &self.servers;
        let local = |name: &str| self.scratch.path().join(name).display().to_string();
        match way {
            Way::Get => (first.url(source), local(&format!("down/{number}"))),
            Way::Put => {
                let source = local(&format!("served/{source}"));
                (source, first.url(&format!("up/{number}")))
            }
            Way::Between => (first.url(source), second.url(&format!("up/{number}"))),
        }
    }

    /// The name of the file that each client copies, beneath the root of the servers.
    fn source(&self, files: Files) -> Result<String, RunError> {
        let bytes = files.bytes_of_each;
        let name = format!("of-{bytes}");
        let path = self.scratch.path().join("served").join(&name);
        if !path.exists() {
            content::write(&path, bytes)?;
        }
        Ok(name)
    }

    /// The files of so many clients.
    fn files(&self, clients: usize) -> Files {
        Files {
            count: clients,
            bytes_of_each: self.bytes / clients as u64,
        }
    }

    /// Removes the copies; returns their number and bytes.
    fn clear(&self) -> Result<(usize, u64), RunError> {
        let mut sum = (0, 0);
        for place in ["down", "served/up"] {
            let (files, bytes) = empty(&self.scratch.path().join(place))?;
            sum = (sum.0 + files, sum.1 + bytes);
        }
        Ok(sum)
    }
}

fn one_line(error: &RunError) -> String {
    let text = error.to_string();
    let words: Vec<&str> = text.split_whitespace().take(60).collect();
    words.join(" ")
}
