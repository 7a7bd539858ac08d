//! Two servers, one at each end of the cable, and a client that copies from one to the other.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::guest::{LEFT, RIGHT};
use gridhaul_interop::{
    Client, Finished, HOST, Kind, Launch, Pki, Server, UserKind, content, give_away,
};
use tempfile::TempDir;

use crate::path;

/// Both sites, and their users' certificates.
pub(crate) struct Sites {
    directory: TempDir,
    servers: [Server; 2],
    wrapper: Vec<String>,
}

impl Sites {
    /// Servers that accept the stack `rdma`. The first has a file of so many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::through(bytes, &[])
    }

    /// The same, with servers that these words start.
    pub(crate) fn through(bytes: u64, wrapper: &[&str]) -> Self {
        let wrapper: Vec<String> = wrapper.iter().map(ToString::to_string).collect();
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let servers = [("source", LEFT), ("destination", RIGHT)].map(|(name, address)| {
            let root = directory.path().join(name);
            fs::create_dir(&root).unwrap();
            give_away(&root).unwrap();
            start(&root, address, &wrapper)
        });
        let sites = Self {
            directory,
            servers,
            wrapper,
        };
        content::write(&sites.source(), bytes).unwrap();
        sites
    }

    /// Copies the file with these options of `globus-url-copy`.
    pub(crate) fn copy(&self, options: &[&str]) -> Finished {
        let [source, destination] = &self.servers;
        Client::new("globus-url-copy")
            .args(options.iter().copied())
            // The servers are known by addresses, which their certificate does not name.
            .args(["-s", HOST])
            .arg(format!("gsiftp://{}/file", source.address()))
            .arg(format!("gsiftp://{}/copy", destination.address()))
            .envs(Pki::shared().unwrap().environment(UserKind::Plain))
            .time_limit(Duration::from_secs(120))
            .run()
            .unwrap()
    }

    /// Copies the file, compares it and removes the copy.
    pub(crate) fn copy_whole(&self, options: &[&str]) {
        let copied = self.copy(options);
        self.is_whole(&copied);
        println!("{options:?} took {:.2} s", copied.elapsed.as_secs_f64());
    }

    /// Fails unless the copy was made; removes it.
    pub(crate) fn is_whole(&self, copied: &Finished) {
        assert!(copied.status.success(), "{copied}\n{}", self.logs());
        content::same(&self.source(), &self.destination()).unwrap();
        fs::remove_file(self.destination()).unwrap();
    }

    /// Returns when a part of the file, but not all of it, has arrived.
    pub(crate) fn wait_for_the_middle(&self) {
        let whole = fs::metadata(self.source()).unwrap().len();
        let started = Instant::now();
        loop {
            let bytes = fs::metadata(self.destination()).map_or(0, |copy| copy.len());
            if bytes > whole / 5 {
                assert!(bytes < whole, "the copy was too quick");
                return;
            }
            let limit = Duration::from_secs(30);
            assert!(started.elapsed() < limit, "{}", self.logs());
            thread::yield_now();
        }
    }

    /// Resets all connections between the two ends but the control channels.
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

    /// Kills the second server and all its processes.
    pub(crate) fn kill_destination(&self) {
        path::run("kill", &format!("-KILL -- -{}", self.servers[1].pid()));
    }

    /// Starts it again.
    pub(crate) fn restart_destination(&mut self) {
        let root = self.directory.path().join("destination");
        self.servers[1] = start(&root, RIGHT, &self.wrapper);
    }

    /// What the servers have logged.
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

fn start(root: &Path, address: &str, wrapper: &[String]) -> Server {
    let launch = Launch::new(Kind::Gridhaul, root)
        .address(address.parse().unwrap())
        .gsi(Pki::shared().unwrap())
        .arg("--allowed-drivers")
        .arg("tcp,rdma,gsi");
    let launch = wrapper.iter().fold(launch, Launch::through);
    launch.start().unwrap()
}
