//! Two servers, one at each end of the cable, and a client that copies from one to the other.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::guest::{LEFT, RIGHT};
use gridhaul_interop::{
    Client, Finished, HOST, Kind, Launch, Pki, Server, UserKind, chown_to_nobody, content,
    gridhaul_client,
};
use tempfile::TempDir;

use crate::path;

/// Both sites, and their users' certificates.
pub(crate) struct Sites {
    directory: TempDir,
    servers: [Server; 2],
    /// How the second server is started.
    start: Start,
    destination: String,
}

/// The command line of a server.
#[derive(Debug, Default, Clone)]
pub(crate) struct Start {
    /// The wrapper command.
    pub(crate) wrapper: Vec<String>,
    /// Further arguments.
    pub(crate) arguments: Vec<String>,
}

impl Sites {
    /// Servers that accept the stack `rdma`. The first has a file of this length.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::started(bytes, Start::default())
    }

    /// The same, with this command line.
    pub(crate) fn started(bytes: u64, start: Start) -> Self {
        Self::at([LEFT, RIGHT], bytes, [start.clone(), start])
    }

    /// The same at these addresses, each with a command line.
    pub(crate) fn at(addresses: [&str; 2], bytes: u64, starts: [Start; 2]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let server = |name, start: &Start, address| {
            let root = directory.path().join(name);
            fs::create_dir(&root).unwrap();
            chown_to_nobody(&root).unwrap();
            start.server(&root, address)
        };
        let ([here, there], [source, destination]) = (addresses, starts);
        let servers = [
            server("source", &source, here),
            server("destination", &destination, there),
        ];
        let sites = Self {
            servers,
            directory,
            start: destination,
            destination: there.to_owned(),
        };
        content::write(&sites.source(), bytes).unwrap();
        sites
    }

    /// Copies the file with these options of `globus-url-copy`.
    pub(crate) fn copy(&self, options: &[&str]) -> Finished {
        copy(self.servers.each_ref().map(Server::address), options)
    }

    /// Copies the file, compares it and removes the copy.
    pub(crate) fn copy_whole(&self, options: &[&str]) {
        let copied = self.copy(options);
        self.is_whole(&copied);
        println!("{options:?} took {:.2} s", copied.elapsed.as_secs_f64());
    }

    /// Fails unless the copy succeeded; compares and removes it.
    pub(crate) fn is_whole(&self, copied: &Finished) {
        assert!(copied.status.success(), "{copied}\n{}", self.logs());
        content::same(&self.source(), &self.destination()).unwrap();
        fs::remove_file(self.destination()).unwrap();
    }

    /// Returns when at least `least` bytes of the file, but not all, have arrived.
    pub(crate) fn wait_for(&self, least: u64) {
        let whole = fs::metadata(self.source()).unwrap().len();
        let started = Instant::now();
        loop {
            let bytes = fs::metadata(self.destination()).map_or(0, |copy| copy.len());
            if bytes > least {
                assert!(bytes < whole, "the copy was too quick");
                return;
            }
            let limit = Duration::from_secs(30);
            assert!(started.elapsed() < limit, "{}", self.logs());
            // All programs of a guest share one processor.
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Resets all connections between the two ends except the control channels.
    pub(crate) fn kill_data_connections(&self) {
        let [source, destination] = self
            .servers
            .each_ref()
            .map(|server| server.address().port());
        let others = [source, destination]
            .map(|port| format!("sport != :{port} and dport != :{port}"))
            .join(" and ");
        path::run(
            "ss",
            &format!("--kill --numeric state established src 10.9.0.0/24 and {others}"),
        );
    }

    /// Moves all queue pairs of the first server, on devices of this driver, to the error state; returns their number.
    pub(crate) fn kill_queue_pairs(&self, driver: &str) -> usize {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/guest/kill-queue-pairs");
        let finished = Client::new(program)
            .args([&self.servers[0].pid().to_string(), driver])
            .run()
            .unwrap();
        let count = finished.output().trim().parse();
        count.unwrap_or_else(|_| panic!("{finished}"))
    }

    /// The program `gridhaul` of this user, in the directory of the sites.
    pub(crate) fn gridhaul(&self, arguments: &[&str]) -> Finished {
        Client::new(gridhaul_client().unwrap())
            .args(arguments.iter().copied())
            .envs(Pki::shared().unwrap().environment(UserKind::Plain))
            .directory(self.directory.path())
            // Only there a guest can write.
            .env("TMPDIR", std::env::temp_dir())
            .time_limit(Duration::from_secs(120))
            .run()
            .unwrap()
    }

    /// The URL of a file of the first server, or of the second.
    pub(crate) fn urls(&self, name: &str) -> [String; 2] {
        let addresses = self.servers.each_ref().map(Server::address);
        addresses.map(|address| format!("gsiftp://{address}/{name}"))
    }

    /// Compares a copy with the file of the first server, and removes it.
    pub(crate) fn is_same(&self, copy: &str) {
        content::same(&self.source(), &self.local(copy)).unwrap();
        fs::remove_file(self.local(copy)).unwrap();
    }

    /// The log lines of the transfers of each server, in order.
    pub(crate) fn transfers(&self) -> [Vec<String>; 2] {
        self.servers
            .each_ref()
            .map(|server| transfers(&server.log()))
    }

    /// A file of the client.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Prevents the first server from pinning more memory.
    pub(crate) fn limit_memory_to_pin(&self) {
        let process = self.servers[0].pid();
        path::run("prlimit", &format!("--pid {process} --memlock=65536:65536"));
    }

    /// Stops all processes of the second server for a time.
    pub(crate) fn pause_destination(&self, time: Duration) {
        let group = self.servers[1].pid();
        path::run("kill", &format!("-STOP -- -{group}"));
        thread::sleep(time);
        path::run("kill", &format!("-CONT -- -{group}"));
    }

    /// Kills the second server and all its processes.
    pub(crate) fn kill_destination(&self) {
        path::run("kill", &format!("-KILL -- -{}", self.servers[1].pid()));
    }

    /// Starts it again.
    pub(crate) fn restart_destination(&mut self) {
        let root = self.directory.path().join("destination");
        self.servers[1] = self.start.server(&root, &self.destination);
    }

    /// The log lines of the first server's transfers, in order.
    pub(crate) fn transfers_of_source(&self) -> Vec<String> {
        transfers(&self.servers[0].log())
    }

    /// The logs of both servers.
    pub(crate) fn logs(&self) -> String {
        self.servers.each_ref().map(Server::log).join("\n")
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.directory.path().join("source/file")
    }

    pub(crate) fn destination(&self) -> PathBuf {
        self.directory.path().join("destination/copy")
    }
}

/// Copies `file` of the first server to `copy` of the second.
pub(crate) fn copy([source, destination]: [SocketAddr; 2], options: &[&str]) -> Finished {
    Client::new("globus-url-copy")
        .args(options.iter().copied())
        // The URLs have addresses, which the host certificate does not contain.
        .args(["-s", HOST])
        .arg(format!("gsiftp://{source}/file"))
        .arg(format!("gsiftp://{destination}/copy"))
        .envs(Pki::shared().unwrap().environment(UserKind::Plain))
        .time_limit(Duration::from_secs(120))
        .run()
        .unwrap()
}

impl Start {
    /// A server that accepts the stack `rdma`.
    pub(crate) fn server(&self, root: &Path, address: &str) -> Server {
        let launch = Launch::new(Kind::Gridhaul, root)
            .address(address.parse().unwrap())
            .gsi(Pki::shared().unwrap())
            .arg("--allowed-drivers")
            .arg("tcp,rdma,gsi");
        let launch = self.arguments.iter().fold(launch, Launch::arg);
        let launch = self.wrapper.iter().fold(launch, Launch::through);
        launch.start().unwrap()
    }
}

/// The number after `name=` in a log line or a reply.
pub(crate) fn number(line: &str, name: &str) -> u64 {
    let words = line.split(|letter: char| "\"[],".contains(letter) || letter.is_whitespace());
    let number = words
        .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .find_map(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// The log lines of transfers, in order.
pub(crate) fn transfers(log: &str) -> Vec<String> {
    let lines = log.lines();
    let lines = lines.filter(|line| line.contains("transfer finished"));
    lines.map(str::to_owned).collect()
}
