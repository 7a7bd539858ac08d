//! Copies by `gridhaul copy` whose client or server is killed, and that are resumed.
//!
//! What is sent again is measured without the client: what the destination had at the last kill is read from its disk, and what was
//! sent afterwards from the transfer log of the server.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::dice::Dice;
use crate::support::{Failure, Kind, Launch, Server, check, chown_to_nobody, content};

/// The largest block of MODE E that the client and the server send, in bytes.
const BLOCK: u64 = 1 << 20;

/// Files at a time.
const CONCURRENCY: u64 = 2;

/// The content of files has its offset in each piece of so many bytes: no hole is equal.
const PIECE: usize = 512;

/// How long a copy may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Data channels that were cut have ended after this time, and nothing is written any more.
const SETTLED: Duration = Duration::from_millis(700);

/// Rounds with consecutive seeds.
#[derive(Debug, Clone)]
pub struct CopyCampaign {
    /// The program `gridhaul`.
    pub client: PathBuf,
    /// The seed of the first round.
    pub seed: u64,
    /// The number of rounds.
    pub rounds: u64,
}

/// What a round does; all of it follows from the seed.
#[derive(Debug, Clone, Copy)]
struct Script {
    way: Way,
    victim: Victim,
    parallel: u64,
    is_large: bool,
    delays: [Duration; 2],
    kills: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Get,
    Put,
    Between,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Client,
    /// The server at the end that sends, or the only one.
    Source,
    /// The server at the end that receives, or the only one.
    Destination,
}

/// The bytes that were sent again after the last kill, if one hit the copy.
type SentAgain = Option<u64>;

impl CopyCampaign {
    /// Runs all rounds, and tells each on standard error. Returns the seeds and the words of those in which something was wrong.
    ///
    /// # Errors
    ///
    /// When programs do not start.
    pub fn run(&self) -> Result<Vec<(u64, String)>, Failure> {
        let mut defects = Vec::new();
        for seed in self.seed..self.seed + self.rounds {
            let script = Script::of(seed);
            match script.play(&self.client) {
                Ok(sent) => {
                    let words = match sent {
                        Some(bytes) => format!("{bytes} bytes sent again"),
                        None => "ended before".to_owned(),
                    };
                    eprintln!("seed {seed}: {script}: {words}");
                }
                Err(failure) => {
                    eprintln!("seed {seed}: {script}: {failure}");
                    defects.push((seed, failure.to_string()));
                }
            }
        }
        Ok(defects)
    }
}

impl Script {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut delay = || Duration::from_millis(300 + dice.below(2200));
        let delays = [delay(), delay()];
        Self {
            way: dice.one_of(&[Way::Get, Way::Put, Way::Between]),
            victim: dice.one_of(&[
                Victim::Client,
                Victim::Client,
                Victim::Source,
                Victim::Destination,
            ]),
            parallel: dice.one_of(&[1, 4]),
            is_large: dice.below(4) > 0,
            delays,
            kills: dice.one_of(&[1, 1, 2]),
        }
    }

    /// Blocks that may be sent again.
    fn bound(self) -> u64 {
        2 * BLOCK * self.parallel * CONCURRENCY
    }

    fn play(self, client: &Path) -> Result<SentAgain, Failure> {
        let mut site = Site::start(self)?;
        let mut had = None;
        let mut copy = site.copy(client, false)?;
        for delay in &self.delays[..self.kills] {
            thread::sleep(*delay);
            if copy.try_wait()?.is_some() {
                break;
            }
            if self.victim == Victim::Client {
                copy.kill()?;
                copy.wait()?;
                thread::sleep(SETTLED);
                had = Some(site.present()?);
                copy = site.copy(client, true)?;
            } else {
                site.kill(self.victim)?;
                thread::sleep(SETTLED);
                had = Some(site.present()?);
                site.restart(self.victim)?;
            }
        }
        site.finish(client, copy)?;
        content::same_tree(&site.source(), &site.destination())?;
        let Some((present, logged)) = had else {
            return Ok(None);
        };
        // The log is written a moment later.
        thread::sleep(SETTLED);
        let sent = site.logged()? - logged;
        let missing = site.bytes()? - present;
        // What was compared in pieces is known less exactly.
        let inexact = PIECE as u64 * self.parallel * CONCURRENCY;
        check(sent + inexact >= missing, || {
            format!("the log has {sent} bytes, and {missing} were missing")
        })?;
        let again = sent.saturating_sub(missing);
        check(again <= self.bound(), || {
            format!("{again} bytes were sent again, more than {}", self.bound())
        })?;
        Ok(Some(again))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = if self.is_large { "large" } else { "small" };
        write!(
            f,
            "{:?} of {size} files over {} channels, {} kills of {:?}",
            self.way, self.parallel, self.kills, self.victim
        )
    }
}

/// A directory at each end, and the servers.
struct Site {
    script: Script,
    place: TempDir,
    servers: Vec<Server>,
}

impl Site {
    fn start(script: Script) -> Result<Self, Failure> {
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
        let mut dice = Dice::new(script.parallel + script.kills as u64);
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
        let mut site = Self {
            script,
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

    fn source(&self) -> PathBuf {
        self.place.path().join("from/tree")
    }

    fn destination(&self) -> PathBuf {
        self.place.path().join("to/tree")
    }

    /// Starts the copy, or its continuation.
    fn copy(&self, client: &Path, resume: bool) -> Result<Child, Failure> {
        let locations = match self.script.way {
            Way::Get => [self.servers[0].url("tree"), "to/tree".to_owned()],
            Way::Put => ["from/tree".to_owned(), self.servers[0].url("tree")],
            Way::Between => [self.servers[0].url("tree"), self.servers[1].url("tree")],
        };
        // So that all files together have 16 MB/s.
        let rate = 64 / self.script.parallel;
        let mut command = Command::new(client);
        command
            .args(["copy", "-r", "--json", "-c", &CONCURRENCY.to_string()])
            .args(["-p", &self.script.parallel.to_string()])
            .args(["--stack", &format!("tcp:rate={rate}m")])
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

    /// Waits for the copy, and continues it until it is complete.
    fn finish(&self, client: &Path, mut copy: Child) -> Result<(), Failure> {
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
            // A kill before the first record leaves nothing to continue.
            copy = self.copy(client, !errors.contains("was interrupted"))?;
        }
    }

    /// The place of a server in [`Self::servers`], and its end.
    fn victim(&self, victim: Victim) -> (usize, &'static str) {
        match (self.script.way, victim) {
            (Way::Get, _) => (0, "from"),
            (Way::Put, _) => (0, "to"),
            (Way::Between, Victim::Source) => (0, "from"),
            (Way::Between, _) => (1, "to"),
        }
    }

    fn kill(&self, victim: Victim) -> Result<(), Failure> {
        let server = &self.servers[self.victim(victim).0];
        server.kill()?;
        let deadline = Instant::now() + LIMIT;
        while !server.processes().is_empty() {
            check(Instant::now() < deadline, || {
                "processes of a killed server go on".to_owned()
            })?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn restart(&mut self, victim: Victim) -> Result<(), Failure> {
        let (place, end) = self.victim(victim);
        let port = self.servers[place].address().port();
        self.servers[place] = self.launch(end).port(port).start()?;
        Ok(())
    }

    /// The bytes of all files.
    fn bytes(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        for entry in fs::read_dir(self.source())? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes)
    }

    /// The bytes that the destination has of files that a resumed copy continues, or as whole files; and the bytes in the log by now.
    fn present(&self) -> Result<(u64, u64), Failure> {
        let mut present = 0;
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
                present += forms.iter().map(same).max().unwrap_or_default();
            }
        }
        Ok((present, self.logged()?))
    }

    /// The bytes of complete transfers in the log of the server that sends or receives.
    fn logged(&self) -> Result<u64, Failure> {
        let (end, kind) = match self.script.way {
            Way::Get => ("from", "TYPE=RETR"),
            Way::Put | Way::Between => ("to", "TYPE=STOR"),
        };
        let log = self.place.path().join(format!("{end}.log"));
        // There is none before the first transfer.
        let log = fs::read_to_string(log).unwrap_or_default();
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
