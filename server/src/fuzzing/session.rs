//! Whole sessions of an anonymous client that may write.
//!
//! The served directory has links to a directory beside it, which the client must not read, change or add to.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::config::{Config, ListenAddress, Seconds, ServeArguments, Settings};
use crate::fuzz_input::Input;
use crate::server::{PreparedServer, Server};
use crate::session::Stream;

use super::client::{Client, SECRET, TIME_LIMIT};

/// Runs one session of a client with these commands and data.
pub fn session(input: &[u8]) {
    static SERVED: LazyLock<Mutex<Served>> = LazyLock::new(|| Mutex::new(Served::new()));
    let served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    served.run(input);
}

/// A server of a directory, and a directory beside that.
struct Served {
    runtime: Runtime,
    server: Server,
    directory: TempDir,
}

/// The state of the directory outside of the root.
#[derive(Debug, PartialEq, Eq)]
struct Outside {
    names: Vec<PathBuf>,
    secret: Vec<u8>,
    modes: [u32; 2],
    modified: [(i64, i64); 2],
    owners: [(u32, u32); 2],
}

impl Served {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("root")).expect("made");
        fs::create_dir(directory.path().join("outside")).expect("made");
        fs::write(directory.path().join("outside/secret"), SECRET).expect("written");
        let config = Config::load(&ServeArguments {
            settings: Settings {
                root: Some(directory.path().join("root")),
                listen: Some(vec![ListenAddress::At((Ipv4Addr::LOCALHOST, 0).into())]),
                anonymous: Some(true),
                anonymous_write: Some(true),
                data_timeout: Some(Seconds(1)),
                movers: Some(16),
                file_threads: Some(8),
                ..Settings::default()
            },
            ..ServeArguments::default()
        })
        .expect("a valid configuration");
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let server = {
            let _guard = runtime.enter();
            let prepared = PreparedServer::new(config).expect("prepared");
            prepared.start().expect("started")
        };
        Self {
            runtime,
            server,
            directory,
        }
    }

    fn run(&self, input: &[u8]) {
        let mut input = Input(input);
        self.fill();
        let outside = self.outside();
        let tasks = self.tasks();
        self.runtime.block_on(self.serve(&mut input));
        assert_eq!(self.outside(), outside);
        let begun = Instant::now();
        while self.tasks() > tasks {
            assert!(begun.elapsed() < TIME_LIMIT, "a task stays");
            std::thread::yield_now();
        }
    }

    async fn serve(&self, input: &mut Input<'_>) {
        /// The capacity of each direction.
        const BETWEEN: usize = 16 * 1024;

        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
        let (ours, theirs) = tokio::io::duplex(BETWEEN);
        let (reader, writer) = tokio::io::split(theirs);
        let stream = Stream::Pipes {
            input: Box::new(reader),
            output: Box::new(writer),
        };
        let session = self.server.stranger(address, address);
        let session = tokio::spawn(session.run(stream));
        let client = Client::new(ours, input).await.expect("a listener");
        client.run(input).await;
        let ended = timeout(TIME_LIMIT, session).await;
        ended
            .expect("the session ends with its stream")
            .expect("no panic");
    }

    fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Restores the root for the next session.
    fn fill(&self) {
        let root = self.path("root");
        for entry in fs::read_dir(&root).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).expect("removed");
            } else {
                fs::remove_file(path).expect("removed");
            }
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("set");
        fs::write(root.join("a"), b"a file\n".repeat(100)).expect("written");
        fs::create_dir(root.join("d")).expect("made");
        fs::write(root.join("d/b"), b"").expect("written");
        symlink("../outside/secret", root.join("link")).expect("made");
        symlink("../outside", root.join("out")).expect("made");
        symlink(self.path("outside"), root.join("absolute")).expect("made");
    }

    fn outside(&self) -> Outside {
        let paths = [self.path("outside"), self.path("outside/secret")];
        let of = |path: &Path| fs::symlink_metadata(path).expect("it is there");
        let entries = fs::read_dir(&paths[0]).expect("listed");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        names.sort();
        Outside {
            names,
            secret: fs::read(&paths[1]).expect("read"),
            modes: [of(&paths[0]).mode(), of(&paths[1]).mode()],
            modified: paths
                .each_ref()
                .map(|path| (of(path).mtime(), of(path).mtime_nsec())),
            owners: paths
                .each_ref()
                .map(|path| (of(path).uid(), of(path).gid())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_input::tests::over_arbitrary_bytes;

    #[test]
    fn sessions_answer_every_command_and_stay_within_their_root() {
        let served = Served::new();
        over_arbitrary_bytes(100, 200, |input| served.run(input));
    }
}
