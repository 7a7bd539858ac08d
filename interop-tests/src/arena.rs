//! The servers and directories that cases share.
//!
//! All servers of an [`Arena`] serve the same directory tree, in which each run of a case has a
//! directory of its own, so a file that one server wrote can be looked at without asking it.
//! Started as root, both servers act as `nobody`; what a case puts into its directory belongs to
//! `nobody` too.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::case::{Case, Failure, Partners};
use crate::{Client, Kind, Launch, LaunchError, Pki, Server, content, url};

/// The account `nobody` of Debian.
const NOBODY: u32 = 65534;

/// What a server of the arena is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Most cases use this one.
    Main,
    /// The other end of third-party copies.
    Second,
    /// Listens on `::1`.
    Ipv6,
    /// Anonymous users may only read.
    ReadOnly,
    /// Serves the whole machine, so that paths are the machine's.
    WholeMachine,
    /// As the main one, for users with certificates. Ours makes keys on a curve for their delegations, because an
    /// RSA key takes longer than most cases.
    Gsi,
    /// As the second one, for users with certificates.
    SecondGsi,
    /// As [`Role::Gsi`], with RSA keys for delegations, which is what ours makes unless it is told otherwise.
    GsiRsa,
    /// As [`Role::SecondGsi`], with RSA keys for delegations.
    SecondGsiRsa,
    /// For anonymous users and one with a password, who may ask for TLS.
    Tls,
}

/// How many roles there are.
const ROLES: usize = Role::Tls as usize + 1;

/// Servers, started when first used, and the tree they serve.
#[derive(Debug)]
pub struct Arena {
    servers: [OnceLock<Result<Server, LaunchError>>; ROLES * 2],
    /// Removed after the servers have ended.
    directory: TempDir,
}

impl Arena {
    /// Makes the tree; starts nothing yet.
    ///
    /// # Errors
    ///
    /// When a temporary directory cannot be made.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("gridhaul-interop-")
            .tempdir()?;
        // A temporary directory is closed to `nobody` at first.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        for part in ["root", "local"] {
            fs::create_dir(directory.path().join(part))?;
        }
        Ok(Self {
            servers: Default::default(),
            directory,
        })
    }

    /// The server of `kind` for `role`.
    ///
    /// # Errors
    ///
    /// When it cannot be started, now or at the first use.
    pub fn server(&self, kind: Kind, role: Role) -> Result<&Server, Failure> {
        let index = role as usize * 2 + usize::from(kind == Kind::Globus);
        // Made now, because it may fail.
        let pki = match role {
            Role::Gsi | Role::SecondGsi | Role::GsiRsa | Role::SecondGsiRsa | Role::Tls => {
                Some(pki()?)
            }
            _ => None,
        };
        let start = || {
            let root = match role {
                Role::WholeMachine => PathBuf::from("/"),
                _ => self.directory.path().join("root"),
            };
            let mut launch = Launch::new(kind, root);
            if kind == Kind::Gridhaul {
                // Many cases are refused on purpose, all from one address.
                launch = launch.arg("--penalty-exempt").arg("127.0.0.0/8");
            }
            match (role, pki) {
                (Role::Ipv6, _) => launch.ipv6(),
                (Role::ReadOnly, _) => launch.read_only(),
                (Role::Tls, Some(pki)) => launch.tls(pki),
                (Role::Gsi | Role::SecondGsi, Some(pki)) if kind == Kind::Gridhaul => {
                    launch.gsi(pki).arg("--delegation-keys").arg("ec")
                }
                (_, Some(pki)) => launch.gsi(pki),
                (_, None) => launch,
            }
            .start()
        };
        let server = self.servers[index].get_or_init(start);
        server
            .as_ref()
            .map_err(|error| Failure::Wrong(error.to_string()))
    }

    /// Directories and servers for one run of a case. The server of its first role is the source, and
    /// the destination if there is but one; that of the other role is its partner.
    ///
    /// # Errors
    ///
    /// When a server does not start or a directory cannot be made.
    pub fn context(&self, case: &Case, subject: Kind) -> Result<Context<'_>, Failure> {
        let [first, second] = case.roles;
        let (source, destination) = match case.partners {
            Partners::One => ((subject, first), (subject, first)),
            Partners::Alike => ((subject, first), (subject, second)),
            Partners::ToGlobus => ((subject, first), (Kind::Globus, second)),
            Partners::FromGlobus => ((Kind::Globus, second), (subject, first)),
        };
        let directory = format!(
            "{}-{}",
            subject.name(),
            case.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
        );
        let mut environment = match case.user {
            Some(user) => pki()?.environment(user),
            None => Vec::new(),
        };
        environment.extend(case.environment.iter().cloned());
        let context = Context {
            arena: self,
            subject,
            source: self.server(source.0, source.1)?,
            destination: self.server(destination.0, destination.1)?,
            directory,
            environment,
        };
        for directory in [context.remote(""), context.local("")] {
            fs::create_dir(&directory)?;
            give_away(&directory)?;
        }
        Ok(context)
    }
}

/// What one run of a case works with.
///
/// Names of files are relative to the case's own directory, of which there is one in the servers'
/// tree (*remote*) and one outside of it (*local*).
#[derive(Debug)]
pub struct Context<'a> {
    arena: &'a Arena,
    subject: Kind,
    source: &'a Server,
    destination: &'a Server,
    directory: String,
    environment: Vec<(OsString, OsString)>,
}

impl<'a> Context<'a> {
    /// The kind of server under test.
    pub fn subject(&self) -> Kind {
        self.subject
    }

    /// The server that files come from; also the one of cases with a single server.
    pub fn source(&self) -> &'a Server {
        self.source
    }

    /// The server that files go to.
    pub fn destination(&self) -> &'a Server {
        self.destination
    }

    /// The server under test in another role.
    ///
    /// # Errors
    ///
    /// When it does not start, or the machine has no IPv6.
    pub fn server(&self, role: Role) -> Result<&'a Server, Failure> {
        if role == Role::Ipv6 && !has_ipv6() {
            return Err(Failure::Unable(
                "this machine has no IPv6 address besides ::1, without which programs do not try \
                 IPv6"
                    .into(),
            ));
        }
        self.arena.server(self.subject, role)
    }

    /// The certificates and keys of the tests.
    ///
    /// # Errors
    ///
    /// When they could not be made.
    pub fn pki(&self) -> Result<&'static Pki, Failure> {
        pki()
    }

    /// `name` relative to the servers' root.
    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// URL of `name` at the source.
    pub fn from(&self, name: &str) -> String {
        self.source.url(&self.name(name))
    }

    /// URL of `name` at the destination.
    pub fn to(&self, name: &str) -> String {
        self.destination.url(&self.name(name))
    }

    /// URL of `name` at the source for programs to which a path in a URL begins in the home
    /// directory, which is the served root.
    pub fn home_url(&self, name: &str) -> String {
        format!("{}/{}", self.source.base(), url::escape(&self.name(name)))
    }

    /// The path of `name` on the control channel of the source.
    pub fn path(&self, name: &str) -> String {
        self.source.path(&self.name(name))
    }

    /// Where `name` is on this machine, in the servers' tree.
    pub fn remote(&self, name: &str) -> PathBuf {
        self.arena
            .directory
            .path()
            .join("root")
            .join(&self.directory)
            .join(name)
    }

    /// Where `name` is on this machine, outside of the servers' tree.
    pub fn local(&self, name: &str) -> PathBuf {
        self.arena
            .directory
            .path()
            .join("local")
            .join(&self.directory)
            .join(name)
    }

    /// `file://` URL of [`Self::local`].
    pub fn local_url(&self, name: &str) -> String {
        format!(
            "file://{}",
            url::escape(&self.local(name).display().to_string())
        )
    }

    /// Makes a remote file with some content of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn remote_sample(&self, name: &str, bytes: u64) -> io::Result<PathBuf> {
        let path = self.remote(name);
        content::write(&path, bytes)?;
        give_away(&path)?;
        Ok(path)
    }

    /// Makes a local file with some content of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn local_sample(&self, name: &str, bytes: u64) -> io::Result<PathBuf> {
        let path = self.local(name);
        content::write(&path, bytes)?;
        Ok(path)
    }

    /// Makes a remote file with this `content`.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn remote_file(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.remote(name);
        fs::write(&path, content)?;
        give_away(&path)?;
        Ok(path)
    }

    /// Makes a remote directory.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn remote_directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.remote(name);
        fs::create_dir_all(&path)?;
        give_away(&path)?;
        Ok(path)
    }

    /// Empties the case's directories.
    ///
    /// # Errors
    ///
    /// When something cannot be removed.
    pub fn clear(&self) -> io::Result<()> {
        for directory in [self.remote(""), self.local("")] {
            remove(&directory)?;
            fs::create_dir(&directory)?;
            give_away(&directory)?;
        }
        Ok(())
    }

    /// The environment in which client programs act for the case's user.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    /// `globus-url-copy` with `arguments`.
    pub fn globus_url_copy<A: Into<OsString>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Client {
        Client::new("globus-url-copy")
            .args(arguments)
            .envs(self.environment())
            .directory(self.local(""))
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // What is left goes with the arena.
        let _ = remove(&self.remote(""));
        let _ = remove(&self.local(""));
    }
}

fn pki() -> Result<&'static Pki, Failure> {
    Pki::shared().map_err(|error| Failure::Wrong(error.to_string()))
}

/// Removes a tree, also directories in it that a case has closed to us.
fn remove(top: &Path) -> io::Result<()> {
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(top)
}

/// `::1` as the kernel writes it.
const LOOPBACK: &str = "00000000000000000000000000000001";

/// Whether programs that ask the resolver for usable addresses get IPv6 ones (RFC 3493 6.1,
/// `AI_ADDRCONFIG`, which does not count the loopback address).
fn has_ipv6() -> bool {
    let interfaces = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    interfaces.lines().any(|line| !line.starts_with(LOOPBACK))
}

/// Lets the account that the servers act as own `path`, if we may decide.
pub fn give_away(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}
