//! A served directory, and the checks that most tests use.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use gridhaul_interop::content::sample as pattern;
use gridhaul_interop::raw::{Control, Reply, TIMEOUT, get_stream};
use gridhaul_interop::{Kind, Launch, Server};
use tempfile::TempDir;

/// Data connections and announced ends of data must come within two seconds.
pub(crate) const DATA_TIMEOUT: [&str; 2] = ["--data-timeout", "2"];

/// A transfer must move 64 KiB in two seconds.
pub(crate) const STALL: [&str; 2] = ["--stall-timeout", "2"];

/// A file that every fixture has, and its content.
pub(crate) const HELLO: (&str, &[u8]) = ("hello.txt", b"hello, data node\n");

/// A server and its files. The root is the subdirectory `root` of a private directory, so that a test can have files
/// outside of it.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    directory: TempDir,
}

impl Fixture {
    /// Our server, anonymous and writable, with these arguments.
    pub(crate) fn ours(arguments: &[&str]) -> Self {
        Self::start(Kind::Gridhaul, arguments)
    }

    /// Our server, anonymous and read-only.
    pub(crate) fn read_only() -> Self {
        Self::launch(Kind::Gridhaul, Launch::read_only)
    }

    /// A server of this kind, anonymous and writable.
    pub(crate) fn start(kind: Kind, arguments: &[&str]) -> Self {
        Self::launch(kind, |launch| {
            arguments
                .iter()
                .fold(launch, |launch, argument| launch.arg(*argument))
        })
    }

    /// A server of this kind, with settings made by `arguments`.
    pub(crate) fn launch(kind: Kind, arguments: impl FnOnce(Launch) -> Launch) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gridhaul-hostile-")
            .tempdir()
            .unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        give_to_server(directory.path());
        give_to_server(&root);
        let server = arguments(Launch::new(kind, root)).start().unwrap();
        let fixture = Self { server, directory };
        fixture.file(HELLO.0, HELLO.1);
        fixture
    }

    /// The private directory around the root.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The served directory.
    pub(crate) fn root(&self) -> &Path {
        self.server.root()
    }

    /// The path of a name on the control channel.
    pub(crate) fn path(&self, name: &str) -> String {
        self.server.path(name)
    }

    /// The address of the control channel.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Makes a file beneath the root.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.root().join(name);
        fs::write(&path, content).unwrap();
        give_to_server(&path);
        path
    }

    /// A sparse file, larger than all socket buffers between two processes.
    pub(crate) fn large_file(&self, name: &str) -> PathBuf {
        let path = self.file(name, b"");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        path
    }

    /// Makes a directory beneath the root.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        fs::create_dir(&path).unwrap();
        give_to_server(&path);
        path
    }

    /// The content of a file beneath the root; empty if it does not exist.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.root().join(name)).unwrap_or_default()
    }

    /// A new session, logged in.
    #[track_caller]
    pub(crate) fn session(&self) -> Control {
        Control::anonymous(self.address()).unwrap()
    }

    /// Checks that the server still works: a new session gets a file.
    #[track_caller]
    pub(crate) fn serves(&self) {
        self.session_works(&mut self.session());
    }

    /// Checks that the server accepts a new session after a connection is free, and serves it.
    #[track_caller]
    pub(crate) fn serves_again(&self) {
        let mut session = None;
        wait_until("there is room again", || {
            session = Control::anonymous(self.address()).ok();
            session.is_some()
        });
        self.session_works(&mut session.unwrap());
    }

    /// Checks that the session still works, in stream mode: it gets a file.
    #[track_caller]
    pub(crate) fn session_works(&self, control: &mut Control) {
        control.must("MODE S", 200).unwrap();
        assert_eq!(get_stream(control, HELLO.0).unwrap(), HELLO.1);
    }
}

/// Gives a path to the account of the server.
pub(crate) fn give_to_server(path: &Path) {
    gridhaul_interop::chown_to_nobody(path).unwrap();
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Checks that the reply has one of these codes, and contains each of these words; `a|b` is either.
#[track_caller]
pub(crate) fn assert_reply(reply: &Reply, codes: &[u16], words: &[&str]) {
    assert!(
        codes.contains(&reply.code),
        "expected one of {codes:?}, received: {reply}"
    );
    for word in words {
        let found = word.split('|').any(|word| reply.contains(word));
        assert!(found, "expected the word `{word}` in the reply: {reply}");
    }
}

/// Waits for a condition that another process causes.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
