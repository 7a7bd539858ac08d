//! The servers and files of a copy that is killed, and what the destination has of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::dice::Dice;
use super::super::remains;
use super::{CONCURRENCY, Mirror, PIECE, RATE, Script, Victim, Way};
use crate::support::{Failure, Kind, Launch, Server, check, chown_to_nobody, content, raw};

/// How long a copy, or the end of a killed one, may take.
const LIMIT: Duration = Duration::from_secs(120);

/// An empty file at each end, beside the tree.
const MARK: &str = "mark";

/// A directory at each end, and the servers.
pub(super) struct Site {
    script: Script,
    place: TempDir,
    /// One at each end that has one, that of the source first.
    servers: Vec<Server>,
}

impl Site {
    pub(super) fn start(script: &Script) -> Result<Self, Failure> {
        let place = tempfile::tempdir()?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(place.path(), open)?;
        for end in ["from", "to"] {
            let directory = place.path().join(end).join("tree");
            fs::create_dir_all(&directory)?;
            for directory in [&place.path().join(end), &directory] {
                chown_to_nobody(directory)?;
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                fs::set_permissions(directory, open)?;
            }
        }
        let mut dice = Dice::new(script.parallel + script.moments.len() as u64);
        let sizes: Vec<u64> = match script.is_large {
            true => vec![20_000_123, 16_777_216, 4_500_001],
            false => (0..300).map(|_| dice.below(200_000)).collect(),
        };
        for (number, bytes) in sizes.iter().enumerate() {
            content::write(
                &place.path().join("from/tree").join(number.to_string()),
                *bytes,
            )?;
        }
        for end in ["from", "to"] {
            fs::write(place.path().join(end).join(MARK), "")?;
        }
        if script.mirror == Mirror::Delete {
            let tree = place.path().join("to/tree");
            fs::create_dir(tree.join("extra"))?;
            for name in ["extra/file", "gone", ".gone.gridhaul-blocks"] {
                fs::write(tree.join(name), "extra")?;
            }
            chown_to_nobody(&tree.join("extra"))?;
        }
        let mut site = Self {
            script: script.clone(),
            place,
            servers: Vec::new(),
        };
        let ends: &[&str] = match script.way {
            Way::Get => &["from"],
            Way::Put => &["to"],
            Way::Between => &["from", "to"],
        };
        for end in ends {
            let server = site.launch(end).start()?;
            site.servers.push(server);
        }
        Ok(site)
    }

    fn launch(&self, end: &str) -> Launch {
        let log = self.place.path().join(format!("{end}.log"));
        Launch::new(Kind::Gridhaul, self.place.path().join(end))
            .arg("--transfer-log")
            .arg(log)
    }

    pub(super) fn source(&self) -> PathBuf {
        self.place.path().join("from/tree")
    }

    pub(super) fn destination(&self) -> PathBuf {
        self.place.path().join("to/tree")
    }

    /// Starts the copy, or its continuation.
    pub(super) fn copy(&self, client: &Path, resume: bool) -> Result<Child, Failure> {
        let locations = match self.script.way {
            Way::Get => [self.servers[0].url("tree"), "to/tree".to_owned()],
            Way::Put => ["from/tree".to_owned(), self.servers[0].url("tree")],
            Way::Between => [self.servers[0].url("tree"), self.servers[1].url("tree")],
        };
        // A rate without a unit is one of bytes.
        let rate = RATE / CONCURRENCY / self.script.parallel;
        let mirror: &[&str] = match self.script.mirror {
            Mirror::Off => &[],
            Mirror::Sync => &["--sync"],
            Mirror::Delete => &["--sync", "--delete"],
        };
        let mut command = Command::new(client);
        command
            .args(["copy", "-r", "--json", "-c", &CONCURRENCY.to_string()])
            .args(["-p", &self.script.parallel.to_string()])
            .args(["--stack", &format!("tcp:rate={rate}")])
            .args(mirror)
            .args(resume.then_some("--resume"))
            .args(locations)
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", self.place.path().join("state"))
            .current_dir(self.place.path())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.place.path().join("errors"))?);
        Ok(command.spawn()?)
    }

    /// Waits until the files of the destination have so many bytes.
    pub(super) fn await_stored(&self, bytes: u64) -> Result<(), Failure> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let stored = self.stored()?;
            if stored >= bytes {
                return Ok(());
            }
            check(Instant::now() < deadline, || {
                format!("the destination has {stored} bytes, and not {bytes}")
            })?;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the copy, and continues it until it is complete.
    pub(super) fn finish(&self, client: &Path, mut copy: Child) -> Result<(), Failure> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = loop {
                if let Some(status) = copy.try_wait()? {
                    break status;
                }
                if Instant::now() > deadline {
                    copy.kill()?;
                    copy.wait()?;
                    return Err(Failure::wrong("the copy does not end"));
                }
                thread::sleep(Duration::from_millis(20));
            };
            if status.success() {
                return Ok(());
            }
            let errors = fs::read_to_string(self.place.path().join("errors"))?;
            if Instant::now() > deadline {
                return Err(Failure::wrong(errors));
            }
            copy = self.copy(client, true)?;
        }
    }

    /// The places of the victims in [`Self::servers`], and their ends.
    fn victims(&self, victim: Victim) -> &'static [(usize, &'static str)] {
        match (self.script.way, victim) {
            (_, Victim::Client) => &[],
            (Way::Get, _) => &[(0, "from")],
            (Way::Put, _) => &[(0, "to")],
            (Way::Between, Victim::All) => &[(0, "from"), (1, "to")],
            (Way::Between, Victim::Source) => &[(0, "from")],
            (Way::Between, Victim::Destination) => &[(1, "to")],
        }
    }

    /// Kills the servers among the victims.
    pub(super) fn kill(&self, victim: Victim) -> Result<(), Failure> {
        let victims = self.victims(victim).iter();
        let servers: Vec<_> = victims.map(|(place, _)| &self.servers[*place]).collect();
        for server in &servers {
            server.kill()?;
        }
        let deadline = Instant::now() + LIMIT;
        while servers.iter().any(|server| !server.processes().is_empty()) {
            check(Instant::now() < deadline, || {
                "processes of a killed server go on".to_owned()
            })?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts the servers among the victims again.
    pub(super) fn restart(&mut self, victim: Victim) -> Result<(), Failure> {
        for (place, end) in self.victims(victim) {
            let port = self.servers[*place].address().port();
            self.servers[*place] = self.launch(end).port(port).start()?;
        }
        Ok(())
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        for entry in fs::read_dir(self.source())? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes)
    }

    /// Waits until nothing of the killed copy, or of the one that has ended, goes on. A client that still copies may keep its sessions.
    pub(super) fn settle(&self, client: Option<u32>) -> Result<(), Failure> {
        let deadline = Instant::now() + LIMIT;
        let destination = self.place.path().join("to");
        loop {
            let servers = self.servers.iter().flat_map(Server::processes);
            let servers: Vec<u32> = servers.collect();
            let files = servers.iter().copied().chain(client);
            let mut held: Vec<_> = files
                .flat_map(|process| remains::open_files(process, &destination))
                .collect();
            if client.is_none() {
                held.extend(servers.into_iter().flat_map(remains::connections));
            }
            if held.is_empty() {
                return Ok(());
            }
            check(Instant::now() < deadline, || {
                format!("what was killed still has {held:?}")
            })?;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The bytes that the destination has, and the bytes in the log by now. After [`Self::settle`] for this `client`.
    pub(super) fn present(&self, client: Option<u32>) -> Result<(u64, u64), Failure> {
        self.settle(client)?;
        // First the log: a file that completes meanwhile counts as sent after the kill, and not as missing.
        let logged = self.logged()?;
        Ok((self.stored()?, logged))
    }

    /// The bytes that the destination has of files that a resumed copy continues, or as whole files. Their content tells them from holes.
    fn stored(&self) -> Result<u64, Failure> {
        let mut stored = 0;
        for entry in fs::read_dir(self.source())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let source = fs::read(self.source().join(&name))?;
            let copy = |name: &str| fs::read(self.destination().join(name)).unwrap_or_default();
            let forms = [
                copy(&name),
                copy(&format!(".{name}.gridhaul-blocks")),
                copy(&format!(".{name}.gridhaul-part")),
            ];
            let same = |copy: &Vec<u8>| {
                let pairs = source.chunks(PIECE).zip(copy.chunks(PIECE));
                let equal = pairs.filter(|(source, copy)| source == copy);
                equal.map(|(source, _)| source.len() as u64).sum::<u64>()
            };
            let is_continued = self.script.is_large || forms[0] == source;
            if is_continued {
                stored += forms.iter().map(same).max().unwrap_or_default();
            }
        }
        Ok(stored)
    }

    /// The bytes of complete transfers in the log of the server that sends or receives.
    pub(super) fn logged(&self) -> Result<u64, Failure> {
        let (end, server, kind) = match self.script.way {
            Way::Get => ("from", self.servers.first(), "TYPE=RETR"),
            Way::Put | Way::Between => ("to", self.servers.last(), "TYPE=STOR"),
        };
        let path = self.place.path().join(format!("{end}.log"));
        // There is none before the first transfer.
        let read = || fs::read_to_string(&path).unwrap_or_default();
        // Processes that were killed have written what they could.
        if let Some(server) = server.filter(|server| !server.processes().is_empty()) {
            written_by(server, read)?;
        }
        let log = read();
        let complete = log
            .lines()
            .filter(|line| line.contains(kind) && line.contains("CODE=226"));
        let bytes = complete.filter_map(|line| {
            let value = line.split("NBYTES=").nth(1)?;
            value.split(' ').next()?.parse::<u64>().ok()
        });
        Ok(bytes.sum())
    }
}

/// Waits until the transfer log has what the server has done until now: lines come in their order, so after that of one more transfer.
fn written_by(server: &Server, read: impl Fn() -> String) -> Result<(), Failure> {
    let marks = || read().matches(&format!("/{MARK} ")).count();
    let before = marks();
    raw::get_stream(&mut raw::Control::anonymous(server.address())?, MARK)?;
    let deadline = Instant::now() + LIMIT;
    while marks() == before {
        check(Instant::now() < deadline, || {
            "the transfer log has no line of the last transfer".to_owned()
        })?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
