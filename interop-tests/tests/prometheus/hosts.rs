//! Servers for faults: their directories, and file systems that are too small or broken.

use std::fs::{self, File, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gridhaul_interop::raw::Control;
use gridhaul_interop::{
    Client, Kind, Launch, Node, NodeLaunch, Pki, Server, chown_to_nobody, gridhaul_program,
};
use tempfile::TempDir;

/// The size of `/big`, which slow clients do not fetch in the time of a test.
const BIG: u64 = 8 << 30;

/// A server with a page of metrics.
pub(crate) struct Host {
    pub(crate) server: Server,
    pub(crate) metrics: SocketAddr,
    _place: TempDir,
}

impl Host {
    /// A server for anonymous users, with the files `/file` and `/big`.
    pub(crate) fn new(flags: &[&str]) -> Self {
        Self::with(flags, |launch| launch)
    }

    pub(crate) fn with(flags: &[&str], change: impl FnOnce(Launch) -> Launch) -> Self {
        let place = public_directory();
        let root = place.path().join("served");
        fs::create_dir(&root).expect("made");
        chown_to_nobody(&root).expect("owned");
        fs::write(root.join("file"), vec![7; 1 << 20]).expect("written");
        let big = File::create(root.join("big")).expect("made");
        big.set_len(BIG).expect("set");
        let flags = [&["--metrics-listen", "127.0.0.1:0"], flags].concat();
        let server = started(&root, &flags, change);
        let metrics = server.metrics_address().expect("it tells the address");
        Self {
            server,
            metrics,
            _place: place,
        }
    }

    /// For users with certificates, whose files brokers open.
    pub(crate) fn for_accounts() -> Self {
        let pki = Pki::shared().expect("certificates");
        let flags = ["--delegation-keys", "ec", "--file-threads", "2"];
        Self::with(&flags, |launch| launch.gsi(pki))
    }

    pub(crate) fn session(&self) -> Control {
        Control::anonymous(self.server.address()).expect("logged in")
    }
}

/// A directory that every account can enter.
pub(crate) fn public_directory() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("set");
    place
}

fn started(root: &Path, flags: &[&str], change: impl FnOnce(Launch) -> Launch) -> Server {
    let launch = Launch::new(Kind::Gridhaul, root)
        .arg("--penalty-exempt")
        .arg("127.0.0.0/8");
    let launch = flags
        .iter()
        .fold(change(launch), |launch, flag| launch.arg(*flag));
    launch.start().expect("started")
}

/// A server with two data nodes.
pub(crate) struct Clustered {
    pub(crate) host: Host,
    socket: PathBuf,
    nodes: Vec<Node>,
    _place: TempDir,
}

impl Clustered {
    pub(crate) fn new() -> Self {
        let pki = Pki::shared().expect("certificates");
        let place = public_directory();
        let nodes = [(); 2].map(|()| NodeLaunch::new(pki, place.path()).start());
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|node| node.expect("started"))
            .collect();
        let names: Vec<_> = nodes
            .iter()
            .map(|node| node.address().to_string())
            .collect();
        let socket = place.path().join("admin.sock");
        let flags = ["--nodes", &names.join(",")];
        let host = Host::with(&flags, |launch| {
            launch.gsi(pki).arg("--admin-socket").arg(&socket)
        });
        let is_used = || host.server.log().matches("a data node can be used").count() == 2;
        let begun = Instant::now();
        while !is_used() {
            let log = host.server.log();
            assert!(begun.elapsed() < Duration::from_secs(60), "{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            host,
            socket,
            nodes,
            _place: place,
        }
    }

    /// Kills the second node.
    pub(crate) fn lose_node(&mut self) {
        self.nodes.truncate(1);
    }

    /// An administrator drains the first node.
    pub(crate) fn drain_node(&self) {
        let done = Client::new(gridhaul_program().expect("the server is built"))
            .args(["nodes", "drain", &self.nodes[0].address().to_string()])
            .arg("--socket")
            .arg(&self.socket)
            .run()
            .expect("it runs");
        assert!(done.status.success(), "{done}");
    }
}

/// A server whose files are on a file system of their own.
pub(crate) struct Mounted {
    pub(crate) server: Server,
    pub(crate) metrics: SocketAddr,
    // Unmounted after the server has ended.
    _mount: Mount,
    place: TempDir,
}

impl Mounted {
    /// With 1 MiB for files and logs.
    pub(crate) fn tiny() -> Self {
        let place = public_directory();
        let root = place.path().join("served");
        let mount = Mount::new(&["-t", "tmpfs", "-o", "size=1M,mode=777", "none"], &root);
        let log = root.join("transfers");
        let log = log.to_str().expect("UTF-8");
        Self::start(place, mount, &["--transfer-log", log])
    }

    /// Whose files can be read until [`Mounted::lose_blocks`].
    pub(crate) fn on_an_image() -> Self {
        let place = public_directory();
        let (image, source) = (place.path().join("image"), place.path().join("source"));
        fs::create_dir(&source).expect("made");
        // Not sparse.
        fs::write(source.join("file"), vec![7; 4 << 20]).expect("written");
        File::create(&image)
            .and_then(|image| image.set_len(16 << 20))
            .expect("made");
        let made = Client::new("mkfs.ext4")
            .args(["-q", "-d"])
            .arg(source)
            .arg(&image)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .run()
            .expect("it runs");
        assert!(made.status.success(), "{made}");
        let image = image.to_str().expect("UTF-8");
        let mount = Mount::new(&["-o", "loop,ro", image], &place.path().join("served"));
        Self::start(place, mount, &[])
    }

    fn start(place: TempDir, mount: Mount, flags: &[&str]) -> Self {
        let flags = [&["--metrics-listen", "127.0.0.1:0"], flags].concat();
        let server = started(&mount.0, &flags, |launch| launch);
        let metrics = server.metrics_address().expect("it tells the address");
        Self {
            server,
            metrics,
            _mount: mount,
            place,
        }
    }

    /// The disk loses most of its blocks: reading them is an I/O error.
    pub(crate) fn lose_blocks(&self) {
        let image = File::options()
            .write(true)
            .open(self.place.path().join("image"));
        image
            .and_then(|image| image.set_len(2 << 20))
            .expect("truncated");
    }

    pub(crate) fn session(&self) -> Control {
        Control::anonymous(self.server.address()).expect("logged in")
    }
}

/// A mounted file system.
struct Mount(PathBuf);

impl Mount {
    fn new(arguments: &[&str], at: &Path) -> Self {
        fs::create_dir(at).expect("made");
        let done = Client::new("mount")
            .args(arguments.iter().copied())
            .arg(at)
            .run()
            .expect("it runs");
        assert!(done.status.success(), "{done}");
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The server has been killed, but perhaps not all of its processes have ended.
        let _ = Client::new("umount").arg("-l").arg(&self.0).run();
    }
}

/// A server that crashes again and again, and is started again at the same addresses.
pub(crate) struct Restarting {
    place: TempDir,
    pub(crate) metrics: SocketAddr,
    server: Option<Server>,
}

impl Restarting {
    pub(crate) fn new() -> Self {
        // No other program uses this address, so that the port stays free while no server runs.
        let free = TcpListener::bind("127.0.0.3:0").expect("bound");
        let metrics = free.local_addr().expect("bound");
        drop(free);
        let mut restarting = Self {
            place: public_directory(),
            metrics,
            server: None,
        };
        restarting.restart();
        restarting
    }

    pub(crate) fn restart(&mut self) {
        drop(self.server.take());
        let metrics = self.metrics.to_string();
        let flags = ["--metrics-listen", &metrics];
        self.server = Some(started(self.place.path(), &flags, |launch| launch));
    }
}
