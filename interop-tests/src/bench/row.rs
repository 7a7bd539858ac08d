//! A row of the benchmark: one thing that is measured.

use std::fmt::Debug;
use std::time::Duration;

use super::sample::{Contender, Sample, Unit};
use super::target::Target;
use super::testbed::{RunError, Testbed};

/// How long a row may take unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(25);

/// One thing to measure.
#[derive(Debug)]
pub struct Row {
    /// Its name, as `--row` takes it.
    pub name: String,
    /// Where it stands in reports.
    pub group: Group,
    /// What a run does, in words.
    pub what: String,
    /// The unit of its value.
    pub unit: Unit,
    /// Who runs it.
    pub contenders: Vec<Contender>,
    /// What the project wants.
    pub targets: Vec<Target>,
    /// A round that would end later than this after the first one began is not run.
    pub limit: Duration,
    pub(super) work: Box<dyn Work>,
}

/// Rows that stand together in reports, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A large file between two servers.
    ThirdParty,
    /// A large file between a server and a client.
    Client,
    /// Channels with handshakes and encryption.
    Protected,
    /// From and to a disk.
    Disk,
    /// Many files.
    Small,
    /// Many clients.
    Crowd,
    /// Checksums of files.
    Checksums,
    /// Listings of directories.
    Listing,
    /// Over an emulated long path.
    Distance,
    /// What sessions take when they do nothing.
    Memory,
}

/// What a row does.
pub trait Work: Debug {
    /// Does it once.
    ///
    /// # Errors
    ///
    /// When it was no success.
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError>;

    /// Removes what no other row needs.
    fn clean(&self, _arena: &Testbed) {}
}

impl Group {
    /// Every group, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::ThirdParty,
        Self::Client,
        Self::Protected,
        Self::Disk,
        Self::Small,
        Self::Crowd,
        Self::Checksums,
        Self::Listing,
        Self::Distance,
        Self::Memory,
    ];

    /// A word for the names of files.
    pub fn word(self) -> &'static str {
        match self {
            Self::ThirdParty => "third-party",
            Self::Client => "client",
            Self::Protected => "protected",
            Self::Disk => "disk",
            Self::Small => "small-files",
            Self::Crowd => "crowd",
            Self::Checksums => "checksums",
            Self::Listing => "listing",
            Self::Distance => "distance",
            Self::Memory => "memory",
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::ThirdParty => "A large file from server to server, memory to memory",
            Self::Client => "A large file with globus-url-copy",
            Self::Protected => "Users with certificates",
            Self::Disk => "A large file from server to server, from and to a disk",
            Self::Small => "Many files with globus-url-copy",
            Self::Crowd => "Many clients at a time",
            Self::Checksums => "Checksums",
            Self::Listing => "Listings",
            Self::Distance => "From server to server over an emulated path of 1 Gb/s",
            Self::Memory => "Memory",
        }
    }
}

impl Row {
    /// A row that both servers run, without a target.
    pub fn new(
        group: Group,
        name: impl Into<String>,
        what: impl Into<String>,
        unit: Unit,
        work: impl Work + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            group,
            what: what.into(),
            unit,
            contenders: Contender::SERVERS.to_vec(),
            targets: Vec::new(),
            limit: LIMIT,
            work: Box::new(work),
        }
    }

    /// Others run it.
    #[must_use]
    pub fn contenders(mut self, contenders: &[Contender]) -> Self {
        self.contenders = contenders.to_vec();
        self
    }

    /// Adds a target.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// It may take longer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}
