//! Servers of each kind over the same files, which run alternately: two for anonymous users and
//! two for users with certificates with files in memory, and two with files on a disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::files::{Files, Sizes, Tree, empty};
use crate::support::scratch::Scratch;
use crate::support::usage::ProcessTree;
use crate::support::{
    Client, ClientError, Kind, Launch, LaunchError, Pki, Server, UserKind, chown_to_nobody,
};

/// The time limit for one run of a client.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

/// Servers that have used no processor time for this long are idle.
const REST: Duration = Duration::from_millis(50);

/// The time limit for becoming idle.
const REST_LIMIT: Duration = Duration::from_secs(3);

/// The place of the files of two servers, and the login of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In memory, for anonymous clients.
    Memory,
    /// In memory, for clients with a proxy certificate (`gsiftp://`).
    Certified,
    /// On a disk, for anonymous clients.
    Disk,
}

/// Two servers of ours, and two real ones.
type Pairs = [[Server; 2]; 2];

/// A value that is made at its first use, or the reason why that failed.
type Lazy<T> = OnceLock<Result<T, String>>;

/// The files and the servers.
#[derive(Debug)]
pub struct Testbed {
    /// The sizes of files and crowds.
    pub sizes: Sizes,
    /// The program of the bare pump: the benchmark itself.
    pub pump: PathBuf,
    memory: Tree,
    disk: Tree,
    down: PathBuf,
    anonymous: Lazy<Pairs>,
    certified: Lazy<Pairs>,
    on_disk: Lazy<Pairs>,
    // The last field, so that the servers end before their files are removed.
    _scratches: [Scratch; 2],
}

impl Testbed {
    /// Makes directories in `/dev/shm` and in `disk`. Files are made and servers started at their first use.
    ///
    /// # Errors
    ///
    /// When the directories cannot be made.
    pub fn new(sizes: Sizes, disk: &Path, pump: PathBuf) -> io::Result<Self> {
        let scratches = [
            Scratch::beneath(Path::new("/dev/shm"))?,
            Scratch::beneath(disk)?,
        ];
        let [memory, disk] = scratches.each_ref().map(Scratch::path);
        let down = memory.join("down");
        fs::create_dir(&down)?;
        Ok(Self {
            sizes,
            pump,
            memory: Tree::new(memory.join("served"), sizes)?,
            disk: Tree::new(disk.join("served"), sizes)?,
            down,
            anonymous: Lazy::new(),
            certified: Lazy::new(),
            on_disk: Lazy::new(),
            _scratches: scratches,
        })
    }

    /// The servers of a kind: the first is the source of third-party copies, the second the
    /// destination; the first is also the one of copies with one server.
    ///
    /// # Errors
    ///
    /// When they do not start, now or at the first call.
    pub fn servers(&self, kind: Kind, place: Place) -> Result<&[Server; 2], RunError> {
        let root = self.tree(place).root();
        let pairs = match place {
            Place::Memory => lazily(&self.anonymous, || pairs(|kind| Launch::new(kind, root))),
            Place::Disk => lazily(&self.on_disk, || pairs(|kind| Launch::new(kind, root))),
            Place::Certified => {
                let pki = pki()?;
                lazily(&self.certified, || {
                    pairs(|kind| Launch::new(kind, root).gsi(pki))
                })
            }
        };
        Ok(&pairs?[usize::from(kind == Kind::Globus)])
    }

    /// A fresh server of a kind over the files in memory.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn fresh_server(&self, kind: Kind) -> Result<Server, LaunchError> {
        launch(kind, self.memory.root()).start()
    }

    /// An empty directory in memory, for a separate server with write access.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn empty_directory(&self, name: &str) -> io::Result<PathBuf> {
        let directory = self.down.with_file_name(name);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir(&directory)?;
        chown_to_nobody(&directory)?;
        Ok(directory)
    }

    /// The files of a place.
    pub fn tree(&self, place: Place) -> &Tree {
        match place {
            Place::Memory | Place::Certified => &self.memory,
            Place::Disk => &self.disk,
        }
    }

    /// The name of files beneath the root of a place. They are made at the first call.
    ///
    /// # Errors
    ///
    /// When there is not enough space.
    pub fn name(&self, place: Place, files: Files) -> io::Result<&'static str> {
        self.tree(place).path(files)?;
        Ok(files.name())
    }

    /// The `file://` URL of files in memory.
    ///
    /// # Errors
    ///
    /// When there is not enough space.
    pub fn local(&self, files: Files) -> io::Result<String> {
        Ok(format!("file://{}", self.memory.path(files)?.display()))
    }

    /// The `file://` URL of a directory in memory for downloads.
    pub fn down(&self) -> String {
        format!("file://{}/", self.down.display())
    }

    /// Runs `globus-url-copy`; its failure is an error with its output.
    ///
    /// # Errors
    ///
    /// When it is not installed, fails or takes too long.
    pub fn copy(
        &self,
        place: Place,
        options: &[&str],
        from: String,
        to: String,
    ) -> Result<Duration, RunError> {
        let mut client = Client::new("globus-url-copy").args(options.iter().copied());
        if place == Place::Certified {
            client = client.envs(pki()?.environment(UserKind::Spaces));
        }
        let finished = client.arg(from).arg(to).time_limit(CLIENT_LIMIT).run()?;
        if finished.status.success() {
            return Ok(finished.elapsed);
        }
        Err(RunError::Failed(finished.to_string()))
    }

    /// Removes the copies and returns their number and bytes.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed.
    pub fn clear(&self) -> Result<(usize, u64), RunError> {
        let parts = [self.memory.clear()?, self.disk.clear()?, empty(&self.down)?];
        let sum = |(files, bytes), (more, many)| (files + more, bytes + many);
        Ok(parts.into_iter().fold((0, 0), sum))
    }

    /// Removes the copies, and checks that they were complete: `bytes` in `files` files.
    ///
    /// # Errors
    ///
    /// When a file is missing, or cannot be removed.
    pub fn clear_exactly(&self, files: usize, bytes: u64) -> Result<(), RunError> {
        let (found, found_bytes) = self.clear()?;
        if (found, found_bytes) == (files, bytes) {
            return Ok(());
        }
        let words = format!(
            "{found} files of {found_bytes} bytes were copied, not {files} of {bytes} bytes"
        );
        Err(RunError::Failed(words))
    }
}

/// The processor time that each of two servers and its sessions have used, once they
/// are idle: after a login a server still has work, such as making keys for the next login.
pub fn processor_at_rest(servers: [&Server; 2]) -> [Duration; 2] {
    let now = || trees(servers).map(ProcessTree::processor_time);
    let deadline = Instant::now() + REST_LIMIT;
    let mut before = now();
    loop {
        thread::sleep(REST);
        let after = now();
        if before == after || Instant::now() > deadline {
            return after;
        }
        before = after;
    }
}

/// The processor time that each of two servers has used, after all sessions have ended.
pub fn processor_times(servers: [&Server; 2]) -> [Duration; 2] {
    // A session of the real server is a process, whose time is counted when it is reaped. Ours has other processes, which stay.
    let has_sessions = |server: &&Server| {
        server.kind() == Kind::Globus && ProcessTree::of(server.pid()).processes() > 1
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while servers.iter().any(has_sessions) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    processor_at_rest(servers)
}

/// The processor time of each of two servers since `before`.
pub fn processor_since(servers: [&Server; 2], before: [Duration; 2]) -> [Duration; 2] {
    let [first, second] = processor_times(servers);
    [
        first.saturating_sub(before[0]),
        second.saturating_sub(before[1]),
    ]
}

fn trees(servers: [&Server; 2]) -> [ProcessTree; 2] {
    servers.map(|server| ProcessTree::of(server.pid()))
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The client did not run.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The client failed, or its copy was incomplete.
    #[error("{0}")]
    Failed(String),
    /// The server or the machine lacks a feature that the row needs.
    #[error("{0}")]
    Unable(String),
    /// A server did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A system call or a command failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The certificates of this run.
///
/// # Errors
///
/// When they could not be made.
pub fn pki() -> Result<&'static Pki, RunError> {
    Pki::shared().map_err(|error| RunError::Failed(error.to_string()))
}

/// A server with the log level of production sites.
pub fn launch(kind: Kind, root: &Path) -> Launch {
    quiet(kind, Launch::new(kind, root))
}

/// Starts two servers of each kind.
fn pairs(launch: impl Fn(Kind) -> Launch) -> Result<Pairs, LaunchError> {
    let start = |kind| quiet(kind, launch(kind)).start();
    let pair = |kind| Ok::<_, LaunchError>([start(kind)?, start(kind)?]);
    Ok([pair(Kind::Gridhaul)?, pair(Kind::Globus)?])
}

fn quiet(kind: Kind, launch: Launch) -> Launch {
    match kind {
        Kind::Gridhaul => launch,
        // Tests need its whole log; sites run it with the default, errors only.
        Kind::Globus => launch.arg("-log-level").arg("ERROR"),
    }
}

fn lazily(
    cell: &Lazy<Pairs>,
    make: impl FnOnce() -> Result<Pairs, LaunchError>,
) -> Result<&Pairs, RunError> {
    cell.get_or_init(|| make().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|error| RunError::Failed(error.clone()))
}
