//! A server in this process.

use std::net::SocketAddr;
use std::path::PathBuf;

use gridhaul_server::config::{Config, ServeArguments, Settings};
use gridhaul_server::{PreparedServer, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::client::Client;

/// A server of a temporary directory that anonymous users may write to.
pub(crate) struct Served {
    runtime: Runtime,
    server: Option<Server>,
    root: TempDir,
    address: SocketAddr,
}

impl Served {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other settings.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let mut settings = Settings {
            root: Some(root.path().to_owned()),
            listen: Some(vec!["127.0.0.1:0".parse().expect("an address")]),
            anonymous: Some(true),
            anonymous_write: Some(true),
            ..Settings::default()
        };
        change(&mut settings);
        let config = config(settings);
        let prepared = PreparedServer::new(config).expect("prepared");
        let runtime = Runtime::new().expect("a runtime");
        let server = {
            let _guard = runtime.enter();
            prepared.start().expect("started")
        };
        let address = server.addresses()[0];
        Self {
            runtime,
            server: Some(server),
            root,
            address,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("not shut down yet")
    }

    /// Begins to shut down.
    pub(crate) fn begin_shutdown(&mut self) -> JoinHandle<bool> {
        let server = self.server.take().expect("not shut down yet");
        self.runtime.spawn(server.shut_down(std::future::pending()))
    }

    pub(crate) fn finish<T>(&self, task: JoinHandle<T>) -> T {
        self.runtime.block_on(task).expect("no panic")
    }

    /// Puts a new, empty directory in the place of the served one, which is `old` beneath the new one.
    pub(crate) fn replace_root(&self) {
        let away = self.remove_root();
        std::fs::create_dir(self.root.path()).expect("made");
        std::fs::rename(away, self.path("old")).expect("renamed");
    }

    /// Takes the served directory away, and returns where it is now.
    pub(crate) fn remove_root(&self) -> PathBuf {
        let away = self.root.path().with_extension("away");
        std::fs::rename(self.root.path(), &away).expect("renamed");
        away
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("read")
    }

    pub(crate) fn directory(&self, name: &str) {
        std::fs::create_dir_all(self.path(name)).expect("made");
    }

    /// A client that was greeted.
    pub(crate) fn greeted(&self) -> Client {
        let mut client = Client::connect(self.address);
        assert_eq!(client.reply().code(), 220);
        client
    }

    /// A client that has logged in, with `TYPE I`.
    pub(crate) fn anonymous(&self) -> Client {
        let mut client = self.greeted();
        client.expect("USER anonymous", 331);
        client.expect("PASS test@", 230);
        client.expect("TYPE I", 200);
        client
    }
}

pub(crate) fn config(settings: Settings) -> Config {
    Config::load(&ServeArguments {
        settings,
        ..ServeArguments::default()
    })
    .expect("a valid configuration")
}
