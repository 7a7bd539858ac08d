//! Starts our server or the real one, and knows where it listens.
//!
//! Our program is the one that `GRIDHAUL_SERVER` names; without that, the newer one of
//! `target/release/gridhaul-server` and `target/debug/gridhaul-server` beside the test program. Cargo
//! does not build it for this crate's tests: `cargo build -p gridhaul-server` does.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::find;
use crate::group::Group;
use crate::{ClientError, url};

/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How often a start is tried again because somebody else took the port in between.
const PORT_ATTEMPTS: usize = 5;

/// Which program serves.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Ours: `gridhaul-server`.
    Gridhaul,
    /// The real one: `globus-gridftp-server`.
    Globus,
}

impl Kind {
    /// The program that is started.
    ///
    /// # Errors
    ///
    /// When it is not built or not installed.
    pub fn program(self) -> Result<PathBuf, LaunchError> {
        match self {
            Self::Gridhaul => gridhaul_program(),
            Self::Globus => Ok(find(OsStr::new("globus-gridftp-server"))?),
        }
    }

    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gridhaul => "ours",
            Self::Globus => "theirs",
        }
    }
}

/// How a server is to be started: anonymous, writable, on loopback, unless said otherwise.
#[derive(Debug)]
pub struct Launch {
    kind: Kind,
    root: PathBuf,
    address: IpAddr,
    anonymous_write: bool,
    wrapper: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Launch {
    /// A server of the files beneath `root`, an absolute path that the account `nobody` can reach.
    pub fn new(kind: Kind, root: impl Into<PathBuf>) -> Self {
        Self {
            kind,
            root: root.into(),
            address: Ipv4Addr::LOCALHOST.into(),
            anonymous_write: true,
            wrapper: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Listens on `::1` instead of `127.0.0.1`.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.address = Ipv6Addr::LOCALHOST.into();
        self
    }

    /// Anonymous users may only read.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.anonymous_write = false;
        self
    }

    /// Adds an argument in the program's own language.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a word of a command that starts the server: its program and arguments follow behind.
    #[must_use]
    pub fn through(mut self, word: impl Into<OsString>) -> Self {
        self.wrapper.push(word.into());
        self
    }

    /// Sets a variable of the server's environment, which otherwise has only `PATH`, `LC_ALL`, `TZ`.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts the server and returns when it listens.
    ///
    /// # Errors
    ///
    /// When the program is missing, ends, or does not listen in time.
    pub fn start(&self) -> Result<Server, LaunchError> {
        let logs = tempfile::Builder::new()
            .prefix("gridhaul-server-")
            .tempdir()?;
        match self.kind {
            Kind::Gridhaul => self.start_gridhaul(logs),
            Kind::Globus => self.start_globus(logs),
        }
    }

    fn start_gridhaul(&self, logs: TempDir) -> Result<Server, LaunchError> {
        let log = logs.path().join("log");
        let mut command = self.command(&self.kind.program()?, &log)?;
        command.args(["serve", "--root"]).arg(&self.root).args([
            "--listen",
            &SocketAddr::new(self.address, 0).to_string(),
            "--anonymous",
        ]);
        if self.anonymous_write {
            command.arg("--anonymous-write");
        }
        command.args(&self.arguments).stdout(Stdio::piped());
        let mut group = Group::start(command)?;
        let stdout = group
            .leader()
            .stdout
            .take()
            .ok_or_else(|| LaunchError::silent(&log))?;
        let address = match first_line(stdout) {
            Some(line) => line
                .strip_prefix("Server listening at ")
                .and_then(|address| address.trim_end().parse().ok())
                .ok_or(LaunchError::FirstLine { line })?,
            None => return Err(LaunchError::silent(&log)),
        };
        Ok(Server {
            kind: self.kind,
            root: self.root.clone(),
            address,
            group,
            logs,
        })
    }

    fn start_globus(&self, logs: TempDir) -> Result<Server, LaunchError> {
        let program = self.kind.program()?;
        let log = logs.path().join("log");
        for _ in 0..PORT_ATTEMPTS {
            let address = TcpListener::bind((self.address, 0))?.local_addr()?;
            let mut command = self.command(&program, &log)?;
            // Without -c it would read the machine's own configuration.
            command
                .args([
                    "-c",
                    "/dev/null",
                    "-p",
                    &address.port().to_string(),
                    "-control-interface",
                ])
                .arg(self.address.to_string())
                .args([
                    "-log-level",
                    "ALL",
                    "-log-module",
                    "stdio:buffer=0",
                    "-logfile",
                ])
                .arg(logs.path().join("session.log"))
                .arg("-home-dir")
                .arg(&self.root)
                .arg("-aa");
            if rustix::process::geteuid().is_root() {
                command.args(["-anonymous-user", "nobody"]);
            }
            if !self.anonymous_write {
                command.args(["-rp", "R/"]);
            }
            command.args(&self.arguments).stdout(Stdio::null());
            let mut group = Group::start(command)?;
            if answers(address, &mut group)? {
                return Ok(Server {
                    kind: self.kind,
                    root: self.root.clone(),
                    address,
                    group,
                    logs,
                });
            }
        }
        Err(LaunchError::silent(&log))
    }

    fn command(&self, program: &Path, log: &Path) -> io::Result<Command> {
        let mut words = self
            .wrapper
            .iter()
            .map(OsString::as_os_str)
            .chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stderr(File::create(log)?);
        Ok(command)
    }
}

/// A server that listens, until it is dropped.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    root: PathBuf,
    address: SocketAddr,
    group: Group,
    logs: TempDir,
}

impl Server {
    /// Starts a server of `kind` with the usual settings.
    ///
    /// # Errors
    ///
    /// As [`Launch::start`].
    pub fn start(kind: Kind, root: impl Into<PathBuf>) -> Result<Self, LaunchError> {
        Launch::new(kind, root).start()
    }

    /// Which program serves.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where its control channel listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The directory that it serves.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The process id, which is also the id of the group that the real server's sessions belong to.
    pub fn pid(&self) -> u32 {
        self.group.id()
    }

    /// The path that names `path`, relative to the root, on the control channel.
    ///
    /// Ours is given a root, so its paths begin there; the real one serves the machine's own paths.
    pub fn path(&self, path: &str) -> String {
        match self.kind {
            Kind::Gridhaul => format!("/{path}"),
            Kind::Globus => self.root.join(path).display().to_string(),
        }
    }

    /// The `ftp://` URL of `path`, relative to the root. Bytes that mean something in a URL are
    /// escaped; a slash at the end stays.
    pub fn url(&self, path: &str) -> String {
        format!("{}{}", self.base(), url::escape(&self.path(path)))
    }

    /// `ftp://HOST:PORT`.
    pub fn base(&self) -> String {
        format!("ftp://{}", self.address)
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.logs.path().join(name)).unwrap_or_default();
        let logs = [read("log"), read("session.log")].concat();
        String::from_utf8_lossy(&logs).into_owned()
    }

    /// Sends SIGTERM and waits for the end, for at most `limit`; `None` when it still runs then.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled or waited for.
    pub fn stop(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        self.group.terminate()?;
        self.group.wait(limit)
    }

    /// Whether the server process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.group.wait(Duration::ZERO), Ok(None))
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Our program has not been built.
    #[error(
        "gridhaul-server was not found in {}: run `cargo build -p gridhaul-server`, or let \
         GRIDHAUL_SERVER name it", .searched.display()
    )]
    NotBuilt {
        /// The target directory that was searched.
        searched: PathBuf,
    },
    /// The real server is not installed.
    #[error(transparent)]
    NotInstalled(#[from] ClientError),
    /// Our server's first line was not what its contract says.
    #[error("the first line must be `Server listening at HOST:PORT`, it was `{line}`")]
    FirstLine {
        /// The line.
        line: String,
    },
    /// It ended, or did not listen in time.
    #[error("the server did not start listening; it said: {log}")]
    Silent {
        /// What it wrote on standard error.
        log: String,
    },
    /// The kernel refused something.
    #[error("cannot start a server: {0}")]
    System(#[from] io::Error),
}

impl LaunchError {
    fn silent(log: &Path) -> Self {
        let log = fs::read(log).unwrap_or_default();
        Self::Silent {
            log: String::from_utf8_lossy(&log).into_owned(),
        }
    }
}

/// Our program: see the module's description.
fn gridhaul_program() -> Result<PathBuf, LaunchError> {
    if let Some(program) = std::env::var_os("GRIDHAUL_SERVER") {
        return Ok(program.into());
    }
    // target/PROFILE/deps/TEST, or target/PROFILE/BINARY.
    let executable = std::env::current_exe()?;
    let target = executable
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").exists())
        .unwrap_or_else(|| Path::new("target"));
    ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("gridhaul-server"))
        .filter_map(|program| Some((fs::metadata(&program).ok()?.modified().ok()?, program)))
        .max()
        .map(|(_, program)| program)
        .ok_or_else(|| LaunchError::NotBuilt {
            searched: target.to_owned(),
        })
}

/// The first line of our server's standard output; the rest is read and dropped.
fn first_line(stdout: impl Read + Send + 'static) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        if stdout
            .by_ref()
            .take(4096)
            .read_line(&mut line)
            .is_ok_and(|length| length > 0)
        {
            let _ = sender.send(line);
        }
        io::copy(&mut stdout, &mut io::sink())
    });
    receiver.recv_timeout(START_LIMIT).ok()
}

/// Waits until a banner comes from `address`; false when the server ended instead.
fn answers(address: SocketAddr, group: &mut Group) -> io::Result<bool> {
    let deadline = Instant::now() + START_LIMIT;
    while Instant::now() < deadline {
        if banner(address) {
            return Ok(true);
        }
        // Nobody listens yet: see for a moment whether the server ends.
        if group.wait(Duration::from_millis(10))?.is_some() {
            return Ok(false);
        }
    }
    Ok(false)
}

fn banner(address: SocketAddr) -> bool {
    let Ok(mut control) = TcpStream::connect_timeout(&address, START_LIMIT) else {
        return false;
    };
    let mut code = [0; 3];
    control.set_read_timeout(Some(START_LIMIT)).is_ok()
        && control.read_exact(&mut code).is_ok()
        && &code == b"220"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_server_listens_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let mut server = Server::start(Kind::Globus, root.path()).unwrap();
        let address = server.address();
        assert!(server.is_running());
        assert!(banner(address));
        assert!(
            server.url("a b").ends_with("/a%20b"),
            "{}",
            server.url("a b")
        );
        drop(server);
        assert!(!banner(address));
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_words() {
        let launch = Launch::new(Kind::Globus, "/").arg("-no-such-option");
        let error = launch.start().unwrap_err();
        assert!(matches!(error, LaunchError::Silent { .. }), "{error}");
    }
}
