//! A row of the benchmark: one thing that is measured.

use std::fmt::Debug;
use std::time::Duration;

use super::sample::{Contender, Sample, Unit};
use super::target::Target;
use super::testbed::{RunError, Testbed};

/// The default time limit of a row.
const LIMIT: Duration = Duration::from_secs(25);

/// One thing to measure.
#[derive(Debug)]
pub struct Row {
    /// Its name, for `--row`.
    pub name: String,
    /// Its group in reports.
    pub group: Group,
    /// A description of a run.
    pub description: String,
    /// The unit of its value.
    pub unit: Unit,
    /// The contenders.
    pub contenders: Vec<Contender>,
    /// The targets.
    pub targets: Vec<Target>,
    /// The time limit: a round that would end later is not started.
    pub limit: Duration,
    pub(super) work: Box<dyn Work>,
}

/// A group of rows in reports.
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
    /// Memory of idle sessions.
    Memory,
}

/// The work of a row.
pub trait Work: Debug {
    /// Does one run.
    ///
    /// # Errors
    ///
    /// When the run fails.
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError>;

    /// Removes files that no other row needs.
    fn clean(&self, _testbed: &Testbed) {}
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

    /// The name in file names.
    pub fn file_name(self) -> &'static str {
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
        description: impl Into<String>,
        unit: Unit,
        work: impl Work + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            group,
            description: description.into(),
            unit,
            contenders: Contender::SERVERS.to_vec(),
            targets: Vec::new(),
            limit: LIMIT,
            work: Box::new(work),
        }
    }

    /// Sets the contenders.
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

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}
