//! The driver `rdma` between two servers, driven by `globus-url-copy`: clients do not need the driver for third-party
//! copies.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gridhaul_interop::{
    Client, Finished, Kind, Launch, Pki, Server, UserKind, chown_to_nobody, content,
};
use tempfile::TempDir;

/// More than a ring of the stacks below.
const BYTES: u64 = 40_000_003;

struct Sites {
    directory: TempDir,
    source: Server,
    destination: Server,
}

impl Sites {
    /// Two servers with default drivers.
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let [source, destination] = ["source", "destination"].map(|name| {
            let root = directory.path().join(name);
            fs::create_dir(&root).unwrap();
            content::write(&root.join("file"), BYTES).unwrap();
            chown_to_nobody(&root).unwrap();
            let launch = Launch::new(Kind::Gridhaul, &root).gsi(Pki::shared().unwrap());
            let launch = arguments.iter().fold(launch, Launch::arg);
            launch.start().unwrap()
        });
        Self {
            directory,
            source,
            destination,
        }
    }

    fn copy(&self, options: &[&str]) -> Finished {
        Client::new("globus-url-copy")
            .args(options.iter().copied())
            .arg(self.source.url("file"))
            .arg(self.destination.url("copy"))
            .envs(Pki::shared().unwrap().environment(UserKind::Plain))
            .run()
            .unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }
}

#[test]
fn third_party_copies_use_rdma() {
    let sites = Sites::new();
    for options in [
        &["-dcstack", "rdma"][..],
        &["-dcstack", "rdma:slab=1M;slabs=3;qps=2,gsi", "-p", "4"],
        &[
            "-dcstack",
            "rdma:slab=1M;message=64K;crc=on",
            "-dcpriv",
            "-p",
            "2",
        ],
        &["-dcstack", "rdma:mode=get;slab=1M;qps=2", "-p", "2"],
        &[
            "-dcstack",
            "rdma:slab=1M;rate=800m;burst=256K;message=64K",
            "-fast",
        ],
    ] {
        let copied = sites.copy(options);
        let logs = || format!("{}\n{}", sites.source.log(), sites.destination.log());
        assert!(copied.status.success(), "{options:?}: {copied}\n{}", logs());
        let copy = sites.path("destination/copy");
        content::same(Path::new(&sites.path("source/file")), &copy).unwrap();
        fs::remove_file(copy).unwrap();
        for server in [&sites.source, &sites.destination] {
            let log = server.log();
            let line = log.lines().rfind(|line| line.contains("transfer finished"));
            for detail in ["way=\"rdma\"", "provider=soft", "ring-bytes="] {
                assert!(line.is_some_and(|line| line.contains(detail)), "{log}");
            }
        }
    }
}

#[test]
fn the_stack_list_of_the_administrator_applies() {
    let sites = Sites::with(&["--allowed-drivers", "tcp,rdma,gsi"]);
    let copied = sites.copy(&["-dcstack", "splice"]);
    assert!(!copied.status.success(), "{copied}");
    assert!(
        copied.to_string().contains("splice driver not whitelisted"),
        "{copied}"
    );
    let copied = sites.copy(&["-dcstack", "rdma:slab=1"]);
    assert!(!copied.status.success(), "{copied}");
    assert!(
        copied
            .to_string()
            .contains("option slab of the driver rdma"),
        "{copied}"
    );
    let copied = sites.copy(&["-dcstack", "rdma:device=rxe0"]);
    assert!(!copied.status.success(), "{copied}");
    assert!(
        copied
            .to_string()
            .contains("no client set device=rxe0 for the driver rdma"),
        "{copied}"
    );
}

#[test]
fn a_forbidden_rdma_driver_is_refused() {
    let sites = Sites::with(&["--allowed-drivers", "tcp"]);
    let copied = sites.copy(&["-dcstack", "rdma"]);
    assert!(!copied.status.success(), "{copied}");
    let output = copied.to_string();
    assert!(output.contains("rdma driver not whitelisted"), "{output}");
}

#[test]
fn the_default_stack_of_the_administrator_applies() {
    let sites = Sites::with(&["--stack", "rdma:slab=1M", "--rdma-memory", "64M"]);
    let copied = sites.copy(&["-p", "4"]);
    let logs = || format!("{}\n{}", sites.source.log(), sites.destination.log());
    assert!(copied.status.success(), "{copied}\n{}", logs());
    let copy = sites.path("destination/copy");
    content::same(Path::new(&sites.path("source/file")), &copy).unwrap();
    assert!(sites.source.log().contains("ring-bytes="), "{}", logs());
}
