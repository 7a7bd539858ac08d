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
    /// What the copy does with what the destination has.
    pub mirror: Mirror,
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

/// What a copy does with what the destination has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    /// Nothing: all is copied.
    Off,
    /// `--sync`: what is unchanged is not copied.
    Sync,
    /// `--sync --delete`: what the source does not have is removed. The destination has files and a directory of this kind.
    Delete,
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
    /// `gridhaul copy` and all servers at once. The servers are started again before the copy is.
    All,
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
            mirror: Mirror::Off,
            moments: moments.to_vec(),
        };
        script.moments.truncate(dice.one_of(&[1, 1, 2]));
        // Behind the others, so that a seed has the same ones as before.
        if dice.below(4) == 0 {
            let early = Duration::from_millis(dice.below(300));
            script.moments[0] = Moment::After(early);
        }
        if dice.below(4) == 0 {
            script.victim = Victim::All;
        }
        script.mirror = dice.one_of(&[Mirror::Off, Mirror::Off, Mirror::Sync, Mirror::Delete]);
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
            let kills_client = matches!(self.victim, Victim::Client | Victim::All);
            if kills_client {
                copy.kill()?;
            }
            site.kill(self.victim)?;
            if kills_client {
                copy.wait()?;
            }
            had = site.present((!kills_client).then(|| copy.id()))?;
            site.restart(self.victim)?;
            if kills_client {
                copy = site.copy(client, true)?;
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
        let moments: Vec<_> = self.moments.iter().map(Moment::to_string).collect();
        write!(
            f,
            "{:?} of {size} files over {} channels, mirror {:?}, kills of {:?} {}",
            self.way,
            self.parallel,
            self.mirror,
            self.victim,
            moments.join(", then ")
        )
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(delay) => write!(f, "after {} ms", delay.as_millis()),
            Self::Stored(bytes) => write!(f, "at {bytes} stored bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_script() {
        let words = |seed| Script::of(seed).to_string();
        assert_eq!(words(7), words(7));
        let scripts: Vec<Script> = (0..200).map(Script::of).collect();
        let is_early =
            |moment: &Moment| matches!(moment, Moment::After(delay) if delay.as_millis() < 300);
        for has in [
            |one: &Script| one.victim == Victim::All,
            |one: &Script| one.victim == Victim::Source,
            |one: &Script| one.mirror == Mirror::Delete,
            |one: &Script| one.mirror == Mirror::Sync && !one.is_large,
        ] {
            assert!(scripts.iter().any(has));
        }
        assert!(scripts.iter().any(|one| one.moments.iter().any(is_early)));
    }
}
