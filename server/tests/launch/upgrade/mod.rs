//! A new version of the program takes over from a running one.

mod failures;
mod overlap;
mod transfers;

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::client::Client;
use crate::program::{Running, clean, program, public_directory, text, wait_for, write_program};

/// The bytes of the file `large`: more than buffers take.
const LARGE: usize = 32 << 20;

/// A server whose program can be replaced.
struct Site {
    root: TempDir,
    private: TempDir,
}

/// A main process that the test did not start itself. It is killed when the value is dropped.
pub(crate) struct Successor(Pid);

impl Site {
    /// With these lines in the configuration file.
    fn new(config: &str) -> Self {
        let site = Self {
            root: public_directory(),
            private: public_directory(),
        };
        let all = Permissions::from_mode(0o777);
        fs::set_permissions(site.root.path(), all).expect("set");
        fs::write(site.root.path().join("large"), pattern(LARGE)).expect("written");
        site.configure(config);
        site.install();
        site
    }

    fn configure(&self, lines: &str) {
        let socket = self.socket();
        let root = text(self.root.path());
        let common = format!(
            "root = {root:?}\nlisten = '127.0.0.1:0'\nanonymous = true\nanonymous-write = true\n\
             admin-socket = {:?}\npenalty-exempt = '127.0.0.0/8'\n",
            text(&socket)
        );
        // A loaded machine takes long for several versions.
        let grace = if lines.contains("grace") {
            ""
        } else {
            "grace = '10m'\n"
        };
        fs::write(self.file(), format!("{common}{grace}{lines}")).expect("written");
    }

    fn file(&self) -> PathBuf {
        self.private.path().join("gridhaul.toml")
    }

    fn socket(&self) -> PathBuf {
        self.private.path().join("admin.sock")
    }

    fn program(&self) -> PathBuf {
        self.private.path().join("gridhaul-server")
    }

    /// Puts the program of this build to its place, and removes what was there.
    fn install(&self) {
        // There is none at first.
        let _ = fs::remove_file(self.program());
        fs::hard_link(copy_of_program(), self.program()).expect("linked");
    }

    /// Puts a script to the place of the program.
    fn install_script(&self, script: &str) {
        write_program(&self.program(), &format!("#!/bin/sh\n{script}\n"));
    }

    fn command(&self) -> Command {
        let mut command = clean(Command::new(self.program()));
        command.args(["serve", "--config"]).arg(self.file());
        command
    }

    fn start(&self) -> Running {
        Running::of(&mut self.command())
    }

    fn order(&self) -> Output {
        let mut command = program();
        command.arg("upgrade").arg("--socket").arg(self.socket());
        command.output().expect("started")
    }

    /// Replaces the program, and has the new one take over.
    fn upgrade(&self) -> Successor {
        self.install();
        let Output {
            status,
            stdout,
            stderr,
        } = self.order();
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{stderr}");
        Successor::told_by(&stdout)
    }

    /// Orders an upgrade that must fail, and returns the reason.
    fn fail(&self) -> String {
        let Output { status, stderr, .. } = self.order();
        assert_eq!(status.code(), Some(1));
        String::from_utf8(stderr).expect("UTF-8")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.path().join(name)).expect("there")
    }
}

impl Successor {
    /// The one that the command `upgrade` tells of.
    pub(crate) fn told_by(output: &[u8]) -> Self {
        let told = std::str::from_utf8(output).expect("UTF-8");
        let mut words = told.split([' ', ';']);
        let process = words.find_map(|word| word.parse().ok());
        let process = process.and_then(Pid::from_raw);
        Self(process.unwrap_or_else(|| panic!("{told}")))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.0, signal).expect("it runs");
    }

    /// Waits until it has ended.
    fn gone(self) {
        let state = || match test_kill_process(self.0) {
            Ok(()) => "it runs",
            Err(_) => "gone",
        };
        wait_for("ended", state, |state| *state == "gone");
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It has ended in some tests.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// A copy of the program on the file system of temporary directories, which may not be that of the build.
fn copy_of_program() -> &'static Path {
    static COPY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let directory = public_directory();
        let path = directory.path().join("gridhaul-server");
        let built = env!("CARGO_BIN_EXE_gridhaul-server");
        if fs::hard_link(built, &path).is_err() {
            fs::copy(built, &path).expect("copied");
        }
        (directory, path)
    });
    path
}

/// Bytes that show where pieces are missing or in the wrong place.
fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

/// Waits until clients are greeted with these words. The version before may accept some when the new one begins.
fn greeted(server: &Running, words: &str) {
    let greeting = || Client::connect(server).1;
    wait_for(words, greeting, |greeting| greeting.contains(words));
}

/// Receives the rest of a transfer, and compares all of it.
fn receive_rest(mut data: std::net::TcpStream, mut begun: Vec<u8>) {
    data.read_to_end(&mut begun).expect("received");
    assert!(begun == pattern(LARGE), "{} bytes came", begun.len());
}

/// Begins to receive the file `large`.
fn begin_to_receive(client: &mut Client) -> (std::net::TcpStream, Vec<u8>) {
    let mut data = client.retrieve("large");
    let mut begun = vec![0; 64 * 1024];
    data.read_exact(&mut begun).expect("received");
    (data, begun)
}
