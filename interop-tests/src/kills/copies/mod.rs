//! Copies by `gridhaul copy` whose client or server is killed, and that are resumed.
//!
//! What is sent again is measured without the client: what the destination had at the last kill is read from its disk, and what was
//! sent afterwards from the transfer log of the server.

mod site;

use std::fmt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use self::site::Site;
use super::dice::Dice;
use crate::support::{Failure, check, content};

/// The largest block of MODE E that the client and the server send, in bytes.
const BLOCK: u64 = 1 << 20;

/// Files at a time.
const CONCURRENCY: u64 = 2;

/// The limit of the rate of all files together, in bytes per second.
const RATE: u64 = 16_000_000;

/// The content of files has its offset in each piece of so many bytes: no hole is equal.
const PIECE: usize = 512;

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

/// What the rounds of a campaign found.
#[derive(Debug, Default)]
pub struct CopySummary {
    /// Rounds in which a kill hit the copy; the others ended before.
    pub hit: u64,
    /// The seeds of rounds in which something was wrong, and what.
    pub defects: Vec<(u64, String)>,
}

/// What a round does.
#[derive(Debug, Clone)]
pub struct Script {
    /// Which ends are servers.
    pub way: Way,
    /// What is killed.
    pub victim: Victim,
    /// Data channels of each file.
    pub parallel: u64,
    /// Files that are continued after a kill, or many that begin again.
    pub is_large: bool,
    /// When each kill comes. A copy of large files takes 2.5 s at least.
    pub moments: Vec<Moment>,
}

/// When something is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// So long after the start of the copy, or after the previous kill.
    After(Duration),
    /// When the files of the destination have so many bytes.
    Stored(u64),
}

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From a server.
    Get,
    /// To a server.
    Put,
    /// Between two servers.
    Between,
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// `gridhaul copy`, which is then started with `--resume`.
    Client,
    /// The server at the end that sends, or the only one.
    Source,
    /// The server at the end that receives, or the only one.
    Destination,
}

/// A round that went well.
#[derive(Debug, Clone, Copy)]
pub struct Played {
    /// Kills that hit the copy; it ended before the others.
    pub kills: usize,
    /// The bytes that were sent again after the last one.
    pub sent_again: u64,
}

impl CopyCampaign {
    /// Runs all rounds, and tells each on standard error.
    pub fn run(&self) -> CopySummary {
        let mut summary = CopySummary::default();
        for seed in self.seed..self.seed + self.rounds {
            let script = Script::of(seed);
            match script.play(&self.client) {
                Ok(Played { kills: 0, .. }) => eprintln!("seed {seed}: {script}: ended before"),
                Ok(Played { sent_again, .. }) => {
                    summary.hit += 1;
                    eprintln!("seed {seed}: {script}: {sent_again} bytes sent again");
                }
                Err(failure) => {
                    eprintln!("seed {seed}: {script}: {failure}");
                    summary.defects.push((seed, failure.to_string()));
                }
            }
        }
        summary
    }
}

impl Script {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut moment = || Moment::After(Duration::from_millis(300 + dice.below(2200)));
        let moments = [moment(), moment()];
        let mut script = Self {
            way: dice.one_of(&[Way::Get, Way::Put, Way::Between]),
            victim: dice.one_of(&[
                Victim::Client,
                Victim::Client,
                Victim::Source,
                Victim::Destination,
            ]),
            parallel: dice.one_of(&[1, 4]),
            is_large: dice.below(4) > 0,
            moments: moments.to_vec(),
        };
        script.moments.truncate(dice.one_of(&[1, 1, 2]));
        script
    }

    /// The bytes that may be sent again.
    fn bound(&self) -> u64 {
        2 * BLOCK * self.parallel * CONCURRENCY
    }

    /// Copies with the program `client`, kills, and continues the copy until it is complete.
    ///
    /// # Errors
    ///
    /// When programs do not start, a copy is not exact, or more is sent again than was under way.
    pub fn play(&self, client: &Path) -> Result<Played, Failure> {
        let mut site = Site::start(self)?;
        let mut kills = 0;
        let mut had = (0, 0);
        let mut copy = site.copy(client, false)?;
        for moment in &self.moments {
            match *moment {
                // Any moment of the copy.
                Moment::After(delay) => thread::sleep(delay),
                Moment::Stored(bytes) => site.await_stored(bytes)?,
            }
            if copy.try_wait()?.is_some() {
                break;
            }
            kills += 1;
            if self.victim == Victim::Client {
                copy.kill()?;
                copy.wait()?;
                had = site.present(None)?;
                copy = site.copy(client, true)?;
            } else {
                site.kill(self.victim)?;
                had = site.present(Some(copy.id()))?;
                site.restart(self.victim)?;
            }
        }
        site.finish(client, copy)?;
        content::same_tree(&site.source(), &site.destination())?;
        let (present, logged) = had;
        site.settle(None)?;
        let sent = site.logged()? - logged;
        let missing = site.bytes()? - present;
        // What was compared in pieces is known less exactly.
        let inexact = PIECE as u64 * self.parallel * CONCURRENCY;
        check(sent + inexact >= missing, || {
            format!("the log has {sent} bytes, and {missing} were missing")
        })?;
        let sent_again = sent.saturating_sub(missing);
        check(kills == 0 || sent_again <= self.bound(), || {
            format!(
                "{sent_again} bytes were sent again, more than {}",
                self.bound()
            )
        })?;
        Ok(Played { kills, sent_again })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = if self.is_large { "large" } else { "small" };
        write!(
            f,
            "{:?} of {size} files over {} channels, {} kills of {:?}",
            self.way,
            self.parallel,
            self.moments.len(),
            self.victim
        )
    }
}
