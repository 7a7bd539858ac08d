//! The servers, directories and environment of one run of a case.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::setup::{Partners, Role, Setup};
use super::testbed::Testbed;
use crate::support::{Client, Failure, Kind, Pki, Server, chown_to_nobody, content, url};

/// The servers, directories and environment of one run of a case.
///
/// Names of files are relative to the directories of the case: one in the servers'
/// tree (*remote*) and one outside of it (*local*).
#[derive(Debug)]
pub struct Context<'a> {
    testbed: &'a Testbed,
    subject: Kind,
    source: &'a Server,
    destination: &'a Server,
    directory: String,
    environment: Vec<(OsString, OsString)>,
}

impl<'a> Context<'a> {
    /// Directories and servers for one run of the case `name`. The server in the first role is the source, and also
    /// the destination of a case with one server; the server in the second role is its partner.
    ///
    /// # Errors
    ///
    /// When a server does not start or a directory cannot be made.
    pub(super) fn new(
        testbed: &'a Testbed,
        setup: &Setup,
        name: &str,
        subject: Kind,
    ) -> Result<Self, Failure> {
        let [first, second] = setup.roles;
        let (source, destination) = match setup.partners {
            Partners::One => ((subject, first), (subject, first)),
            Partners::Alike => ((subject, first), (subject, second)),
            Partners::ToGlobus => ((subject, first), (Kind::Globus, second)),
            Partners::FromGlobus => ((Kind::Globus, second), (subject, first)),
        };
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut environment = match setup.user {
            Some(user) => pki()?.environment(user),
            None => Vec::new(),
        };
        environment.extend(setup.environment.iter().cloned());
        let context = Self {
            testbed,
            subject,
            source: testbed.server(source.0, source.1)?,
            destination: testbed.server(destination.0, destination.1)?,
            directory: format!("{}-{name}", subject.name()),
            environment,
        };
        for directory in [context.remote(""), context.local("")] {
            fs::create_dir(&directory)?;
            chown_to_nobody(&directory)?;
        }
        Ok(context)
    }

    /// The kind of server under test.
    pub fn subject(&self) -> Kind {
        self.subject
    }

    /// The source; also the server of cases with a single server.
    pub fn source(&self) -> &'a Server {
        self.source
    }

    /// The destination.
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
                "this machine has no IPv6 address except ::1, and without another one programs do not try \
                 IPv6"
                    .into(),
            ));
        }
        self.testbed.server(self.subject, role)
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

    /// URL of `name` at the source for programs that resolve the path of a URL in the home
    /// directory, which is the served root.
    pub fn home_url(&self, name: &str) -> String {
        format!("{}/{}", self.source.base(), url::escape(&self.name(name)))
    }

    /// The path of `name` on the control channel of the source.
    pub fn path(&self, name: &str) -> String {
        self.source.path(&self.name(name))
    }

    /// The path of `name` on this machine, in the servers' tree.
    pub fn remote(&self, name: &str) -> PathBuf {
        self.testbed.remote().join(&self.directory).join(name)
    }

    /// The path of `name` on this machine, outside of the servers' tree.
    pub fn local(&self, name: &str) -> PathBuf {
        self.testbed.local().join(&self.directory).join(name)
    }

    /// `file://` URL of [`Self::local`].
    pub fn local_url(&self, name: &str) -> String {
        format!(
            "file://{}",
            url::escape(&self.local(name).display().to_string())
        )
    }

    /// Makes a remote file of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn remote_sample(&self, name: &str, bytes: u64) -> io::Result<PathBuf> {
        let path = self.remote(name);
        content::write(&path, bytes)?;
        chown_to_nobody(&path)?;
        Ok(path)
    }

    /// Makes a local file of `bytes` bytes.
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
        chown_to_nobody(&path)?;
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
        chown_to_nobody(&path)?;
        Ok(path)
    }

    /// Empties the case's directories.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed.
    pub fn clear(&self) -> io::Result<()> {
        for directory in [self.remote(""), self.local("")] {
            remove(&directory)?;
            fs::create_dir(&directory)?;
            chown_to_nobody(&directory)?;
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
            .copier(self.testbed.copier())
            .args(arguments)
            .envs(self.environment())
            .directory(self.local(""))
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // The testbed removes the remaining files.
        let _ = remove(&self.remote(""));
        let _ = remove(&self.local(""));
    }
}

fn pki() -> Result<&'static Pki, Failure> {
    Pki::shared().map_err(|error| Failure::Wrong(error.to_string()))
}

/// Removes a tree, including directories whose permissions a case has removed.
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
