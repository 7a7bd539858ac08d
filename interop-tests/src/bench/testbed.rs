//! Servers of each kind over the same files, so that they can be run in turn: two for anonymous users and
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

/// How long one run of a client may take.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

/// Servers that used no processor time for so long are at rest.
const REST: Duration = Duration::from_millis(50);

/// How long they may take to come to rest.
const REST_LIMIT: Duration = Duration::from_secs(3);

/// Where a pair of servers has its files, and how clients log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In memory, without saying who they are.
    Memory,
    /// In memory, with a proxy certificate, over `gsiftp://`.
    Certified,
    /// On a disk, without saying who they are.
    Disk,
}

/// Two servers of ours, and two real ones.
type Pairs = [[Server; 2]; 2];

/// What is made when it is first used; if that failed, the reason.
type Lazy<T> = OnceLock<Result<T, String>>;

/// The files and the servers.
#[derive(Debug)]
pub struct Testbed {
    /// How large everything is.
    pub sizes: Sizes,
    /// The program that is the bare pump, as which this one can be started.
    pub pump: PathBuf,
    memory: Tree,
    disk: Tree,
    down: PathBuf,
    anonymous: Lazy<Pairs>,
    certified: Lazy<Pairs>,
    on_disk: Lazy<Pairs>,
    // Last, so that the servers end before their files go.
    _scratches: [Scratch; 2],
}

impl Testbed {
    /// Makes directories in `/dev/shm` and in `disk`. Files and servers come when they are asked for.
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

    /// An empty directory in memory, for a server of its own that may write everywhere.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn room(&self, name: &str) -> io::Result<PathBuf> {
        let room = self.down.with_file_name(name);
        if room.exists() {
            fs::remove_dir_all(&room)?;
        }
        fs::create_dir(&room)?;
        chown_to_nobody(&room)?;
        Ok(room)
    }

    /// The files of a place.
    pub fn tree(&self, place: Place) -> &Tree {
        match place {
            Place::Memory | Place::Certified => &self.memory,
            Place::Disk => &self.disk,
        }
    }

    /// The name of some files beneath the root of a place, where they are made if need be.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn name(&self, place: Place, files: Files) -> io::Result<&'static str> {
        self.tree(place).path(files)?;
        Ok(files.name())
    }

    /// The URL of some files in memory for a client of this machine.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn local(&self, files: Files) -> io::Result<String> {
        Ok(format!("file://{}", self.memory.path(files)?.display()))
    }

    /// The URL of a directory in memory that clients may fill.
    pub fn down(&self) -> String {
        format!("file://{}/", self.down.display())
    }

    /// Runs `globus-url-copy`; a failure of it is an error with its words.
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

    /// Removes what was copied.
    ///
    /// # Errors
    ///
    /// When something cannot be removed.
    pub fn clear(&self) -> Result<(usize, u64), RunError> {
        let parts = [self.memory.clear()?, self.disk.clear()?, empty(&self.down)?];
        let sum = |(files, bytes), (more, many)| (files + more, bytes + many);
        Ok(parts.into_iter().fold((0, 0), sum))
    }

    /// Removes what was copied, and makes sure that it was everything: `bytes` in `files` files.
    ///
    /// # Errors
    ///
    /// When something is missing, or cannot be removed.
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

/// The processor time that each of two servers has used, with that of the sessions that it has, once they
/// are at rest: a login leaves work behind, such as the making of keys for the next one.
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

/// The processor time that each of two servers has used, once no session is left.
pub fn processor_times(servers: [&Server; 2]) -> [Duration; 2] {
    let trees = trees(servers);
    // A session of the real server is a process, whose time counts when it has been reaped.
    let deadline = Instant::now() + Duration::from_secs(5);
    while trees.iter().any(|tree| tree.processes() > 1) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    trees.map(ProcessTree::processor_time)
}

/// What each of two servers has used since.
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

/// Why a run gave no number.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The client did not run.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It, or what it did, was no success.
    #[error("{0}")]
    Failed(String),
    /// The server or the machine has not what the row needs.
    #[error("{0}")]
    Unable(String),
    /// A server did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel or a server refused something.
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

/// A server as sites run it.
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
        // The tests want its whole log; its default is errors only, and that is what sites run.
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
