//! The files and system calls that a configuration needs, for the sandbox of the serving process.

use std::path::{Path, PathBuf};

use gridhaul_accounts::own_directory;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_sandbox::server::{self, Needs};
use gridhaul_sandbox::{Access, Confinement, Files, Place, SandboxError};
use gridhaul_stack::Driver;
use tracing::{info, warn};

use crate::config::{Config, Outcome};
use crate::drivers::registry;
use crate::passwords::Grant;

/// The places of a configuration, opened while the process may still see all of them.
#[derive(Debug)]
pub(crate) struct Prepared {
    needs: Needs,
    files: Files,
}

/// The sandbox of the running process.
#[derive(Debug)]
pub(crate) struct Sandbox {
    needs: Needs,
    confinement: Confinement,
}

/// Properties of the process that are not settings.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    /// The configuration file. A reload reads it again.
    pub(crate) config: Option<PathBuf>,
    pub(crate) local_files: LocalFiles,
    /// The administration socket, if this process removes it at the end. It is in a directory for sockets of servers.
    pub(crate) socket: Option<PathBuf>,
}

/// The process that opens the files of local accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalFiles {
    /// Brokers, so this process needs no access.
    Brokers,
    /// This process, for its own account.
    OwnAccount,
    /// This process, for the user that sshd has authenticated.
    User,
}

impl Prepared {
    /// `grants` are those of the users with passwords.
    pub(crate) fn new(config: &Config, grants: Vec<Grant>, process: &Process) -> Self {
        let places = machine()
            .chain(devices(config.data.may_use("rdma")))
            .chain(named(config, process))
            .chain(roots_of_users(grants));
        Self {
            needs: needs(config, has_adapters()),
            files: Files::at(places),
        }
    }

    /// Confines this process. Must be called while it has one thread.
    pub(crate) fn enforce(self) -> Result<Sandbox, SandboxError> {
        for (path, error) in self.files.missing() {
            let path = path.display();
            warn!(%path, %error, "not in the sandbox: restart the server when this path is there");
        }
        let confinement = server::confine(self.needs, self.files)?;
        for missing in confinement.missing() {
            warn!("the sandbox lacks a part on this kernel: {missing}");
        }
        info!(landlock = confinement.landlock, "confined");
        Ok(Sandbox {
            needs: self.needs,
            confinement,
        })
    }
}

impl Sandbox {
    /// Warns about paths and devices of a new configuration that this process can never use.
    pub(crate) fn warn_of_new(&self, config: &Config, process: &Process) {
        warn_of_uncovered(&self.confinement, &named(config, process));
        let needs = needs(config, has_adapters());
        if needs.rdma && !self.needs.rdma {
            warn!("RDMA devices are not in the sandbox: restart the server to use them");
        }
        if needs.io_uring && !self.needs.io_uring {
            warn!("io_uring is not in the sandbox: restart the server to use it");
        }
    }

    /// Warns about directories of users that this process can never open.
    pub(crate) fn warn_of_new_users(&self, grants: Vec<Grant>) {
        warn_of_uncovered(&self.confinement, &roots_of_users(grants));
    }
}

/// Confines the front process, which opens nothing.
pub(crate) fn confine_front() -> Result<Confinement, SandboxError> {
    gridhaul_sandbox::front::confine()
}

/// Confines the process that writes the logs, which opens nothing.
pub(crate) fn confine_logs() -> Result<Confinement, SandboxError> {
    gridhaul_sandbox::logs::confine()
}

/// Confines the process that starts the callout. It executes a program of the site, whose needs are not known, so calls that no
/// program needs without root's rights are denied, as in the monitor.
pub(crate) fn confine_callout() -> Result<(), SandboxError> {
    gridhaul_sandbox::monitor::confine(true)
}

/// Confines the process that measures RDMA with a peer. It needs no file of a server: what it reads are libraries, the drivers of
/// adapters (libibverbs), and what the kernel tells of the machine.
pub(crate) fn confine_measuring() -> Result<Confinement, SandboxError> {
    const READ: [&str; 8] = [
        "/etc/ld.so.cache",
        "/etc/libibverbs.d",
        "/etc/rdma",
        "/usr",
        "/lib",
        "/lib64",
        "/proc",
        "/sys",
    ];
    let read = READ.map(|path| Place::fixed(path, Access::Read));
    let places = read.into_iter().chain(own_program()).chain(devices(true));
    gridhaul_sandbox::measuring::confine(Files::at(places))
}

/// Confines the login process. `files` were opened before it gave up root.
pub(crate) fn confine_logins(files: Files) -> Result<Confinement, SandboxError> {
    gridhaul_sandbox::login::confine(files)
}

/// Warns about paths of a new configuration that the login process can never read.
pub(crate) fn warn_of_new_logins(confinement: &Confinement, config: &Config, file: Option<&Path>) {
    warn_of_uncovered(confinement, &places_of_logins(config, file));
}

fn warn_of_uncovered(confinement: &Confinement, places: &[Place]) {
    for place in places.iter().filter(|place| !confinement.covers(place)) {
        let path = place.path().display();
        warn!(%path, "not in the sandbox: restart the server to use this path");
    }
}

/// The files of the login process, to be opened before it gives up root.
pub(crate) fn files_of_logins(config: &Config, file: Option<&Path>) -> Files {
    Files::at(machine().chain(places_of_logins(config, file))).without_network()
}

/// The files that decide logins, and the logs, which this process has opened again after a rotation.
fn places_of_logins(config: &Config, file: Option<&Path>) -> Vec<Place> {
    let read = |path: &PathBuf| Place::new(path, Access::Read);
    let mut places: Vec<Place> = file
        .map(|path| Place::new(path, Access::Read))
        .into_iter()
        .collect();
    places.extend(config.passwords.iter().map(read));
    if let Some(host) = &config.security.host {
        places.extend([read(&host.certificates), read(&host.key)]);
        places.extend(host.passphrase.iter().map(read));
    }
    places.extend(config.node_authority.iter().map(read));
    if let Some(gsi) = &config.security.gsi {
        places.extend(gsi.gridmap.iter().map(read));
        places.extend(gsi.ban_lists.iter().map(read));
        if gsi.gsi_authz.exists() {
            places.push(read(&gsi.gsi_authz));
        }
        let directories = [Some(&gsi.trust), gsi.vomsdir.as_ref()];
        let directories = directories.into_iter().flatten();
        places.extend(directories.flat_map(Place::directory_of_links));
    }
    places.extend(config.logs().map(|path| Place::new(path, Access::Append)));
    places
}

/// What the configuration needs on a machine with RDMA adapters or without.
fn needs(config: &Config, has_adapters: bool) -> Needs {
    // A wrong stack is refused elsewhere.
    let drivers = StackSpec::parse(&config.data.stack).map_or(Vec::new(), |stack| stack.drivers);
    let rdma = config.data.may_use("rdma");
    Needs {
        rdma,
        // Few servers without adapters use the driver, and no filter sees what io_uring does.
        io_uring: rdma && has_adapters || drivers.iter().any(uses_io_uring),
    }
}

/// Whether files may go past the page cache over io_uring with these options of a driver.
fn uses_io_uring(driver: &DriverSpec) -> bool {
    let mut options = driver.options.iter();
    let direct = options.find(|(name, _)| name == "direct");
    match direct.map(|(_, value)| &**value) {
        Some(value) => matches!(value, "1" | "auto"),
        None => driver.name == "rdma",
    }
}

/// Whether this machine has adapters for the driver `rdma`.
fn has_adapters() -> bool {
    let registry = registry();
    registry.driver("rdma").is_some_and(Driver::has_devices)
}

/// The places that libraries and this program read on any machine. `/etc` is included as a whole, because the files of the
/// account database are replaced by renaming. A rule for a directory in `/proc` would not last, because the kernel recreates
/// its directories.
fn machine() -> impl Iterator<Item = Place> {
    const READ: [&str; 13] = [
        "/etc",
        "/usr",
        "/lib",
        "/lib64",
        "/proc",
        "/sys",
        // Account databases: sssd, systemd-userdbd, libnss-extrausers, nscd.
        "/var/lib/sss",
        "/var/lib/extrausers",
        "/run/systemd/userdb",
        // Where systemd-resolved has what /etc/resolv.conf is a link to.
        "/run/systemd/resolve",
        "/run/userdb",
        "/run/host/userdb",
        "/var/db",
    ];
    let read = READ.map(|path| Place::fixed(path, Access::Read));
    read.into_iter().chain(own_program())
}

/// For the symbols in a backtrace.
fn own_program() -> Option<Place> {
    let path = std::env::current_exe().ok()?;
    Some(Place::fixed(path, Access::Read))
}

fn devices(rdma: bool) -> impl Iterator<Item = Place> {
    let adapters = rdma.then_some("/dev/infiniband");
    ["/dev/null", "/dev/zero", "/dev/urandom"]
        .into_iter()
        .chain(adapters)
        .map(|path| Place::fixed(path, Access::Device))
}

/// The places that the configuration names.
fn named(config: &Config, process: &Process) -> Vec<Place> {
    let file = process.config.iter();
    let mut places: Vec<Place> = file.map(|path| Place::new(path, Access::Read)).collect();
    // For data channels. Only the login process reads the files that decide logins.
    if let Some(gsi) = &config.security.gsi {
        places.extend(Place::directory_of_links(&gsi.trust));
    }
    let anonymous = config.anonymous.iter();
    places.extend(anonymous.map(|anonymous| root(&config.root, !anonymous.write)));
    let is_node = config.node.is_some();
    if config.passwords.is_some() || process.local_files == LocalFiles::User || is_node {
        places.push(root(&config.root, false));
    }
    if is_node {
        places.extend(own_files_of_node(config));
    }
    if process.local_files == LocalFiles::OwnAccount {
        places.extend(own_roots(config));
        // To remove the administration socket at the end; elsewhere the monitor does.
        let directory = process.socket.as_deref().and_then(Path::parent);
        places.extend(directory.map(|path| Place::fixed(path, Access::Remove)));
    }
    places
}

/// A node has no login process, which reads a renewed certificate, and no log process, which opens logs again.
fn own_files_of_node(config: &Config) -> impl Iterator<Item = Place> {
    let host = config.security.host.iter();
    let host = host.flat_map(|host| {
        [&host.certificates, &host.key]
            .into_iter()
            .chain(&host.passphrase)
    });
    let identity = config.node.iter().flat_map(|node| &node.identity);
    let host = host.chain(identity);
    let host = host.map(|path| Place::new(path, Access::Read));
    host.chain(config.logs().map(|path| Place::new(path, Access::Append)))
}

/// A directory whose files this process opens.
fn root(path: &Path, read_only: bool) -> Place {
    let access = if read_only {
        Access::Read
    } else {
        Access::Write
    };
    Place::new(path, access)
}

/// The directories of single users with passwords.
fn roots_of_users(grants: Vec<Grant>) -> Vec<Place> {
    let own = grants
        .into_iter()
        .filter_map(|grant| Some(root(&grant.root?, grant.read_only)));
    own.collect()
}

/// The directories that rules grant to the account of this process.
fn own_roots(config: &Config) -> impl Iterator<Item = Place> {
    let rules = config.security.gsi.iter().flat_map(|gsi| &gsi.rules);
    rules.filter_map(|rule| match rule.outcome() {
        Outcome::Grant {
            root: of_rule,
            read_only,
            ..
        } => {
            let path = of_rule.as_ref().unwrap_or(&config.root);
            Some(root(&own_directory(path), *read_only))
        }
        Outcome::Deny => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServeArguments, Settings};

    /// A [`Place`] that may be replaced would cover the directory above.
    #[test]
    fn the_right_to_remove_the_socket_ends_at_its_directory() {
        let above = tempfile::tempdir().expect("a directory");
        let directory = above.path().join("gridhaul");
        std::fs::create_dir(&directory).expect("made");
        let [inside, outside] = [directory.join("1.sock"), above.path().join("file")];
        for path in [&inside, &outside] {
            std::fs::write(path, "").expect("written");
        }
        let config = Config::load(&ServeArguments {
            config: None,
            settings: Settings {
                root: Some("/usr".into()),
                listen: Some(vec!["127.0.0.1:0".parse().expect("an address")]),
                anonymous: Some(true),
                ..Settings::default()
            },
            ..ServeArguments::default()
        });
        let process = Process {
            config: None,
            socket: Some(inside.clone()),
            local_files: LocalFiles::OwnAccount,
        };
        let prepared = Prepared::new(&config.expect("valid"), Vec::new(), &process);
        // Landlock cannot be undone, so a thread that ends has it.
        let removed = std::thread::spawn(move || {
            let enforced = prepared.files.enforce_on_this_thread();
            enforced.expect("confined");
            [inside, outside].map(|path| std::fs::remove_file(path).is_ok())
        });
        let removed = removed.join().expect("no panic");
        if gridhaul_sandbox::landlock_abi().is_some() {
            assert_eq!(removed, [true, false]);
        }
    }

    /// No filter sees the operations of io_uring, so it is there only for who needs it.
    #[test]
    fn io_uring_is_allowed_where_a_stack_or_an_adapter_uses_it() {
        let io_uring = |stack: &str, allowed: &str, has_adapters| {
            let config = Config::load(&ServeArguments {
                config: None,
                settings: Settings {
                    root: Some("/usr".into()),
                    listen: Some(vec!["127.0.0.1:0".parse().expect("an address")]),
                    anonymous: Some(true),
                    stack: Some(stack.to_owned()),
                    allowed_drivers: Some(vec![allowed.to_owned()]),
                    ..Settings::default()
                },
                ..ServeArguments::default()
            });
            needs(&config.expect("valid"), has_adapters).io_uring
        };
        for has_adapters in [false, true] {
            assert!(!io_uring("tcp", "tcp", has_adapters));
            assert_eq!(io_uring("tcp", "rdma", has_adapters), has_adapters);
            let of_splice = ["direct=1", "direct=auto", "direct=threads", "direct=0"]
                .map(|option| io_uring(&format!("splice:{option}"), "tcp", has_adapters));
            assert_eq!(of_splice, [true, true, false, false]);
        }
        let of_rdma = ["rdma", "rdma:qps=2", "rdma:direct=1", "rdma:direct=0"];
        let of_rdma = of_rdma.map(|stack| io_uring(stack, "tcp", false));
        assert_eq!(of_rdma, [true, true, true, false]);
    }

    /// With a log in a directory of the account that serves, only the sandbox keeps this process from opening it.
    #[test]
    fn the_serving_process_may_open_no_log() {
        let (root, logs) = (tempfile::tempdir(), tempfile::tempdir());
        let (root, logs) = (root.expect("a directory"), logs.expect("a directory"));
        let log = |name: &str| Some(logs.path().join(name));
        let config = Config::load(&ServeArguments {
            config: None,
            settings: Settings {
                root: Some(root.path().to_owned()),
                listen: Some(vec!["127.0.0.1:0".parse().expect("an address")]),
                anonymous: Some(true),
                log_file: log("log"),
                audit_log: log("audit"),
                transfer_log: log("transfers"),
                ..Settings::default()
            },
            ..ServeArguments::default()
        });
        let config = config.expect("valid");
        let process = Process {
            config: None,
            socket: None,
            local_files: LocalFiles::Brokers,
        };
        let prepared = Prepared::new(&config, Vec::new(), &process);
        // Landlock cannot be undone, so a thread that ends has it.
        let opened = std::thread::spawn(move || {
            let enforced = prepared.files.enforce_on_this_thread();
            enforced.expect("confined");
            let open = |path: &Path| {
                std::fs::File::options()
                    .append(true)
                    .create(true)
                    .open(path)
            };
            config
                .logs()
                .map(|log| open(log).is_ok())
                .collect::<Vec<_>>()
        });
        let opened = opened.join().expect("no panic");
        if gridhaul_sandbox::landlock_abi().is_some() {
            assert_eq!(opened, [false; 3]);
        }
    }
}
