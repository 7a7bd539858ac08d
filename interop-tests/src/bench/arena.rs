//! Servers of each kind over the same files in memory, so that they can be run in turn: two for anonymous
//! users and two for users with certificates.

use std::fs;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::scratch::Scratch;
use super::usage::ProcessTree;
use crate::{Client, ClientError, Kind, Launch, LaunchError, Pki, Server, UserKind};

/// How long one run of a client may take.
const CLIENT_LIMIT: Duration = Duration::from_secs(900);

/// How large everything is.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of the large file.
    pub large: u64,
    /// Small files.
    pub files: usize,
    /// Bytes of each of them.
    pub small: usize,
    /// Idle sessions.
    pub sessions: usize,
    /// Sessions that log in, one after the other or beside each other.
    pub logins: usize,
}

impl Sizes {
    /// What the project's targets are about.
    pub const FULL: Self = Self {
        large: 2_000_000_000,
        files: 2000,
        small: 4096,
        sessions: 500,
        logins: 100,
    };

    /// Enough to see that everything works.
    pub const QUICK: Self = Self {
        large: 64_000_000,
        files: 100,
        small: 4096,
        sessions: 50,
        logins: 8,
    };
}

impl Sizes {
    /// The large file in units of 10^9 bytes.
    #[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
    pub fn large_gigabytes(self) -> f64 {
        self.large as f64 / 1e9
    }
}

/// How clients log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// Without saying who they are.
    Anonymous,
    /// With a proxy certificate, over `gsiftp://`.
    Certificate,
}

/// Two servers of ours, and two real ones.
type Pairs = [[Server; 2]; 2];

/// The files and the servers.
#[derive(Debug)]
pub struct BenchArena {
    /// How large everything is.
    pub sizes: Sizes,
    served: PathBuf,
    local: PathBuf,
    anonymous: Pairs,
    /// Started when first used: the certificates take time.
    certified: OnceLock<Result<Pairs, String>>,
    // Last, so that the servers end before their files go.
    _scratch: Scratch,
}

impl BenchArena {
    /// Makes the files in `/dev/shm` and starts the servers.
    ///
    /// # Errors
    ///
    /// When there is no room, or a server does not start.
    pub fn new(sizes: Sizes) -> Result<Self, LaunchError> {
        let scratch = Scratch::beneath(Path::new("/dev/shm"))?;
        let [served, local] = ["served", "local"].map(|name| scratch.path().join(name));
        for directory in [&served, &local] {
            fs::create_dir(directory)?;
            large_file(&directory.join("large"), sizes.large)?;
            small_files(&directory.join("small"), sizes)?;
        }
        // For every account that the users of the servers have.
        let up = served.join("up");
        fs::create_dir(&up)?;
        fs::set_permissions(&up, Permissions::from_mode(0o777))?;
        let anonymous = pairs(|kind| Launch::new(kind, &served))?;
        Ok(Self {
            sizes,
            served,
            local,
            anonymous,
            certified: OnceLock::new(),
            _scratch: scratch,
        })
    }

    /// The servers of a kind: the first is the source of third-party copies, the second the
    /// destination; the first is also the one of copies with one server.
    ///
    /// # Errors
    ///
    /// When those for users with certificates do not start, now or at the first call.
    pub fn servers(&self, kind: Kind, login: Login) -> Result<&[Server; 2], RunError> {
        let pairs = match login {
            Login::Anonymous => &self.anonymous,
            Login::Certificate => self
                .certified
                .get_or_init(|| {
                    let pki = Pki::shared().map_err(ToString::to_string)?;
                    pairs(|kind| Launch::new(kind, &self.served).gsi(pki))
                        .map_err(|error| error.to_string())
                })
                .as_ref()
                .map_err(|error| RunError::Failed(error.clone()))?,
        };
        Ok(&pairs[usize::from(kind == Kind::Globus)])
    }

    /// A server of a kind that nobody has used yet.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn fresh_server(&self, kind: Kind) -> Result<Server, LaunchError> {
        start(kind, Launch::new(kind, &self.served))
    }

    /// The program that runs as the servers of a kind.
    pub fn program(&self, kind: Kind) -> String {
        let [[ours, _], [theirs, _]] = &self.anonymous;
        let first = match kind {
            Kind::Gridhaul => ours,
            Kind::Globus => theirs,
        };
        let program = fs::read_link(format!("/proc/{}/exe", first.pid()));
        program.map_or_else(
            |_| kind.name().to_owned(),
            |path| path.display().to_string(),
        )
    }

    /// The URL of a local file.
    pub fn local(&self, name: &str) -> String {
        format!("file://{}/{name}", self.local.display())
    }

    /// Runs `globus-url-copy`; a failure of it is an error with its words.
    ///
    /// # Errors
    ///
    /// When it is not installed, fails or takes too long.
    pub fn copy(
        &self,
        login: Login,
        options: &[&str],
        from: String,
        to: String,
    ) -> Result<Duration, RunError> {
        let mut client = Client::new("globus-url-copy").args(options.iter().copied());
        if login == Login::Certificate {
            let pki = Pki::shared().map_err(|error| RunError::Failed(error.to_string()))?;
            client = client.envs(pki.environment(UserKind::Spaces));
        }
        let finished = client.arg(from).arg(to).time_limit(CLIENT_LIMIT).run()?;
        if finished.status.success() {
            return Ok(finished.elapsed);
        }
        Err(RunError::Failed(finished.to_string()))
    }

    /// Removes what was copied, and makes sure that it was everything: `bytes` in `files` files.
    ///
    /// # Errors
    ///
    /// When something is missing, or cannot be removed.
    pub fn clear(&self, files: usize, bytes: u64) -> Result<(), RunError> {
        let up = self.served.join("up");
        let down = self.local.join("down");
        let (mut found, mut found_bytes) = (0, 0);
        for directory in [&up, &down]
            .into_iter()
            .filter(|directory| directory.exists())
        {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                found += 1;
                found_bytes += entry.metadata()?.len();
                fs::remove_file(entry.path())?;
            }
        }
        if (found, found_bytes) == (files, bytes) {
            return Ok(());
        }
        let words = format!(
            "{found} files of {found_bytes} bytes were copied, not {files} of {bytes} bytes"
        );
        Err(RunError::Failed(words))
    }

    /// The processor time that the servers of a kind have used, once no session is left.
    ///
    /// # Errors
    ///
    /// As [`Self::servers`].
    pub fn processor_time(&self, kind: Kind, login: Login) -> Result<Duration, RunError> {
        let trees = self
            .servers(kind, login)?
            .each_ref()
            .map(|server| ProcessTree::of(server.pid()));
        // A session of the real server is a process, whose time counts when it has been reaped.
        let deadline = Instant::now() + Duration::from_secs(5);
        while trees.iter().any(|tree| tree.processes() > 1) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(trees.iter().map(|tree| tree.processor_time()).sum())
    }
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
    /// A server did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel or a server refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Starts two servers of each kind.
fn pairs(launch: impl Fn(Kind) -> Launch) -> Result<Pairs, LaunchError> {
    let pair =
        |kind| Ok::<_, LaunchError>([start(kind, launch(kind))?, start(kind, launch(kind))?]);
    Ok([pair(Kind::Gridhaul)?, pair(Kind::Globus)?])
}

fn start(kind: Kind, launch: Launch) -> Result<Server, LaunchError> {
    match kind {
        Kind::Gridhaul => launch.start(),
        // The tests want its whole log; its default is errors only, and that is what sites run.
        Kind::Globus => launch.arg("-log-level").arg("ERROR").start(),
    }
}

/// A file of bytes that no file system can leave out or compress.
fn large_file(path: &Path, bytes: u64) -> io::Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut piece = Vec::with_capacity(1 << 20);
    while piece.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.extend(state.to_le_bytes());
    }
    let mut file = fs::File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.write_all(&piece[..count])?;
        left -= count as u64;
    }
    Ok(())
}

fn small_files(directory: &Path, sizes: Sizes) -> io::Result<()> {
    fs::create_dir(directory)?;
    let content = vec![b'g'; sizes.small];
    (0..sizes.files)
        .try_for_each(|index| fs::write(directory.join(format!("f{index:05}")), &content))
}
