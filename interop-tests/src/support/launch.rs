//! Starts our server or the real one, and waits until it listens.
//!
//! Both programs choose a free port and print it in their first line.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;

use super::pki::Pki;
use super::process_group::ProcessGroup;
use super::program::{Kind, ProgramError};
use super::server::{START_LIMIT, Server};

/// The option of both programs that accepts accounts without a login shell: those of the tests are
/// Debian's own.
pub(super) const DISABLED_LOGIN: &str = "allow-disabled-login";

/// The settings of a server. By default it is writable for anonymous users and listens on loopback.
#[derive(Clone, Debug)]
pub struct Launch {
    kind: Kind,
    root: PathBuf,
    address: IpAddr,
    /// 0 is a free one.
    port: u16,
    anonymous_write: bool,
    access: Access,
    wrapper: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// Our server accepts users of the grid-mapfile in addition.
    certificates: Option<&'static Pki>,
}

/// How users log in.
#[derive(Clone, Copy, Debug)]
enum Access {
    Anonymous,
    Gsi(&'static Pki),
    Tls(&'static Pki),
}

impl Access {
    fn pki(self) -> Option<&'static Pki> {
        match self {
            Self::Anonymous => None,
            Self::Gsi(pki) | Self::Tls(pki) => Some(pki),
        }
    }
}

impl Launch {
    /// A server of the files beneath `root`, an absolute path that the account `nobody` can reach.
    pub fn new(kind: Kind, root: impl Into<PathBuf>) -> Self {
        Self {
            kind,
            root: root.into(),
            address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            anonymous_write: true,
            access: Access::Anonymous,
            wrapper: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            certificates: None,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Our server accepts users of the grid-mapfile in addition to those that it has: data nodes need that.
    pub(super) fn with_certificates(mut self, pki: &'static Pki) -> Self {
        self.certificates = Some(pki);
        self
    }

    /// Listens on `::1` instead of `127.0.0.1`.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.address = Ipv6Addr::LOCALHOST.into();
        self
    }

    /// Listens on this address of the machine instead of `127.0.0.1`.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = address;
        self
    }

    /// Our server listens on this port, that of a server which has ended.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Anonymous users may only read.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.anonymous_write = false;
        self
    }

    /// Accepts the users of the grid-mapfile, as their accounts, instead of anonymous ones.
    #[must_use]
    pub fn gsi(mut self, pki: &'static Pki) -> Self {
        self.access = Access::Gsi(pki);
        self
    }

    /// Allows `AUTH TLS` (RFC 4217) to anonymous users and to the user with a password, if the program supports it.
    #[must_use]
    pub fn tls(mut self, pki: &'static Pki) -> Self {
        self.access = Access::Tls(pki);
        self
    }

    /// Adds an argument of the program.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a word of a wrapper command, which gets the server's program and arguments appended.
    #[must_use]
    pub fn through(mut self, word: impl Into<OsString>) -> Self {
        self.wrapper.push(word.into());
        self
    }

    /// Sets a variable of the server's environment, which has only `PATH`, `LC_ALL` and `TZ` by default.
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
        let log = logs.path().join("log");
        let program = self.kind.program()?;
        let mut words = self
            .wrapper
            .iter()
            .map(OsString::as_os_str)
            .chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command
            .args(words)
            .args(match self.kind {
                Kind::Gridhaul => self.gridhaul_arguments(),
                Kind::Globus => self.globus_arguments(&logs.path().join("session.log")),
            })
            .args(&self.arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(self.globus_environment())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let mut group = ProcessGroup::start(command)?;
        let lines = lines(group.leader().stdout.take());
        let line = lines
            .recv_timeout(START_LIMIT)
            .map_err(|_| LaunchError::silent(&log))?;
        let address = self
            .address_in(&line)
            .ok_or(LaunchError::FirstLine { line })?;
        Ok(Server {
            kind: self.kind,
            root: self.root.clone(),
            address,
            gsi: !self.is_anonymous(),
            group,
            logs,
            lines: Mutex::new(lines),
        })
    }

    fn gridhaul_arguments(&self) -> Vec<OsString> {
        let listen = SocketAddr::new(self.address, self.port).to_string();
        let mut arguments: Vec<OsString> = ["serve", "--root"].map(Into::into).into();
        arguments.push(self.root.clone().into());
        arguments.extend(["--listen", &listen].map(Into::into));
        let gsi = match self.access {
            Access::Gsi(pki) => Some(pki),
            Access::Anonymous | Access::Tls(_) => self.certificates,
        };
        let mut files = Vec::new();
        if let Some(pki) = gsi {
            arguments.extend(["--gsi".into(), format!("--{DISABLED_LOGIN}").into()]);
            // The accounts that exist on every machine are those of system services, with small UIDs.
            arguments.extend(["--least-uid", "1"].map(Into::into));
            files.extend([
                ("--trust", pki.trust()),
                ("--gridmap", pki.gridmap()),
                ("--vomsdir", pki.voms_directory()),
            ]);
        }
        if let Access::Tls(pki) = self.access {
            files.push(("--passwords", pki.passwords()));
        }
        if let Some(pki) = gsi.or_else(|| self.access.pki()) {
            files.extend([
                ("--cert", pki.host_certificate()),
                ("--key", pki.host_key()),
            ]);
        }
        for (flag, path) in files {
            arguments.extend([flag.into(), path.into()]);
        }
        if self.is_anonymous() {
            arguments.push("--anonymous".into());
            if self.anonymous_write {
                arguments.push("--anonymous-write".into());
            }
        }
        arguments
    }

    fn globus_arguments(&self, log: &Path) -> Vec<OsString> {
        // Without -c it would read the configuration of the machine; without -p it chooses a free
        // port.
        let address = self.address.to_string();
        let mut arguments: Vec<OsString> = ["-c", "/dev/null", "-control-interface", &address]
            .map(Into::into)
            .into();
        arguments.extend(["-log-level", "ALL", "-log-module", "stdio:buffer=0"].map(Into::into));
        arguments.extend([
            "-logfile".into(),
            log.into(),
            "-home-dir".into(),
            self.root.clone().into(),
        ]);
        if !self.is_anonymous() {
            arguments.push(format!("-{DISABLED_LOGIN}").into());
            return arguments;
        }
        arguments.push("-aa".into());
        if rustix::process::geteuid().is_root() {
            arguments.extend(["-anonymous-user", "nobody"].map(Into::into));
        }
        if !self.anonymous_write {
            arguments.extend(["-rp", "R/"].map(Into::into));
        }
        arguments
    }

    fn is_anonymous(&self) -> bool {
        !matches!(self.access, Access::Gsi(_))
    }

    /// The real server takes the paths of its security files from its environment only.
    fn globus_environment(&self) -> Vec<(OsString, OsString)> {
        match (self.kind, self.access) {
            (Kind::Globus, Access::Gsi(pki)) => vec![
                ("X509_USER_CERT".into(), pki.host_certificate().into()),
                ("X509_USER_KEY".into(), pki.host_key().into()),
                ("X509_CERT_DIR".into(), pki.trust().into()),
                ("GRIDMAP".into(), pki.gridmap().into()),
            ],
            _ => Vec::new(),
        }
    }

    /// The address in a server's first line. Ours prints an IP address, the real one a host name.
    fn address_in(&self, line: &str) -> Option<SocketAddr> {
        let address = line.strip_prefix("Server listening at ")?.trim_end();
        match self.kind {
            Kind::Gridhaul => address.parse().ok(),
            Kind::Globus => {
                let port = address.rsplit(':').next()?.parse().ok()?;
                Some(SocketAddr::new(self.address, port))
            }
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no program to start.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The first line has another form.
    #[error(
        "the first line must be `Server listening at HOST:PORT` or `Node listening at HOST:PORT`, it was `{line}`"
    )]
    FirstLine {
        /// The line.
        line: String,
    },
    /// It ended, or did not listen in time.
    #[error("the server did not start listening; its log: {log}")]
    Silent {
        /// Its standard error.
        log: String,
    },
    /// A system call failed.
    #[error("cannot start a server: {0}")]
    System(#[from] io::Error),
}

impl LaunchError {
    pub(super) fn silent(log: &Path) -> Self {
        let log = fs::read(log).unwrap_or_default();
        Self::Silent {
            log: String::from_utf8_lossy(&log).into_owned(),
        }
    }
}

/// The first lines of a server's standard output; the rest is read and dropped.
pub(super) fn lines(stdout: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    /// More than our server writes when it starts.
    const MOST: usize = 20;

    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut stdout = BufReader::new(stdout?);
        for _ in 0..MOST {
            let mut line = String::new();
            let length = stdout.by_ref().take(4096).read_line(&mut line).ok()?;
            if length == 0 || sender.send(line).is_err() {
                break;
            }
        }
        drop(sender);
        io::copy(&mut stdout, &mut io::sink()).ok()
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_words() {
        let launch = Launch::new(Kind::Globus, "/").arg("-no-such-option");
        let error = launch.start().unwrap_err();
        assert!(
            matches!(
                error,
                LaunchError::Silent { .. } | LaunchError::FirstLine { .. }
            ),
            "{error}"
        );
    }

    #[test]
    fn the_first_line_names_the_address() {
        let line = "Server listening at localhost:2811\n";
        let globus = Launch::new(Kind::Globus, "/").ipv6();
        assert_eq!(globus.address_in(line), "[::1]:2811".parse().ok());
        let gridhaul = Launch::new(Kind::Gridhaul, "/");
        assert_eq!(gridhaul.address_in(line), None);
        assert_eq!(
            gridhaul.address_in("Server listening at [::1]:21\n"),
            "[::1]:21".parse().ok()
        );
    }

    fn greets(address: SocketAddr) -> bool {
        let mut code = [0; 3];
        TcpStream::connect(address).is_ok_and(|mut control| control.read_exact(&mut code).is_ok())
            && &code == b"220"
    }

    #[test]
    fn the_real_server_listens_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let mut server = Launch::new(Kind::Globus, root.path()).start().unwrap();
        let address = server.address();
        assert!(server.is_running());
        assert!(greets(address));
        assert!(
            server.url("a b").ends_with("/a%20b"),
            "{}",
            server.url("a b")
        );
        drop(server);
        assert!(!greets(address));
    }
}
