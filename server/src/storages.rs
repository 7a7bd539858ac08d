//! The storage of each account, opened once for all of its sessions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gridhaul_accounts::{AccountRequest, Accounts, BrokerCounts, BrokerSource, open_own};
use gridhaul_storage::{PosixOptions, PosixStorage, Rights, StorageError};
use gridhaul_transfer::{AccountFiles, AttachError, NodeAccount};
use rustix::io::Errno;
use tracing::{error, info, warn};

use crate::config::Config;
use crate::locks::lock;
use crate::telemetry::tell;

/// The root directories that sessions use with the server's own rights. The server's root is opened at the start, so that it
/// may be in a directory that only root can search; those of single users are opened when they first log in. Brokers open
/// the files of local accounts.
#[derive(Debug)]
pub(crate) struct Storages {
    options: PosixOptions,
    opened: Mutex<HashMap<Key, Arc<PosixStorage>>>,
    /// `None` without brokers: then this process opens the files of its own account.
    accounts: Option<Accounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    root: PathBuf,
    read_only: bool,
}

impl Storages {
    /// Opens the server's root.
    pub(crate) fn open(
        config: &Config,
        brokers: Option<Arc<dyn BrokerSource>>,
    ) -> Result<Self, StorageError> {
        let options = PosixOptions {
            file_mode: config.perms,
            rights: Rights::Shared,
            ..PosixOptions::default()
        };
        let storages = Self {
            options,
            opened: Mutex::default(),
            accounts: brokers.map(|brokers| Accounts::new(brokers, config.accounts.brokers)),
        };
        for key in own_keys(config, storages.accounts.is_some()) {
            storages.open_key(key)?;
        }
        Ok(storages)
    }

    /// For the front process, which opens no root.
    pub(crate) fn closed(config: &Config) -> Self {
        Self {
            options: PosixOptions {
                file_mode: config.perms,
                ..PosixOptions::default()
            },
            opened: Mutex::default(),
            accounts: None,
        }
    }

    /// The files of an account. May block.
    pub(crate) fn get(&self, account: &NodeAccount) -> Result<AccountFiles, AttachError> {
        match &account.account {
            Some(local) => self.get_local(local, account),
            None => Ok(AccountFiles {
                storage: self.get_own(account)?,
                home: PathBuf::from("/"),
            }),
        }
    }

    /// The number of brokers.
    pub(crate) fn brokers(&self) -> usize {
        self.accounts.as_ref().map_or(0, Accounts::running)
    }

    /// What has happened to brokers since the start.
    pub(crate) fn broker_counts(&self) -> BrokerCounts {
        let accounts = self.accounts.as_ref();
        accounts.map_or_else(BrokerCounts::default, Accounts::counts)
    }

    fn get_local(&self, local: &str, account: &NodeAccount) -> Result<AccountFiles, AttachError> {
        let request = AccountRequest {
            account: local.to_owned(),
            root: account.root.clone(),
            read_only: account.read_only,
            file_mode: self.options.file_mode,
        };
        let opened = match &self.accounts {
            Some(accounts) => accounts.open(&request).map(|storage| AccountFiles {
                home: storage.home(),
                storage: Arc::new(storage),
            }),
            None => open_own(&request).map(|(storage, home)| AccountFiles {
                storage: Arc::new(storage),
                home,
            }),
        };
        opened.map_err(|error| AttachError::Account(error.to_string()))
    }

    fn get_own(&self, account: &NodeAccount) -> Result<Arc<PosixStorage>, StorageError> {
        let key = Key {
            root: account.root.clone(),
            read_only: account.read_only,
        };
        let held = lock(&self.opened).get(&key).cloned();
        match held {
            Some(storage) => self.current(key, storage),
            None => self.open_key(key),
        }
    }

    /// The storage of an open root, or a new one if its path leads to another directory now: the directory was replaced, or
    /// a file system was mounted there. Sessions keep the old one.
    ///
    /// # Errors
    ///
    /// When the new directory cannot be opened. The old one is not used: users would read and write files that have no path
    /// any more.
    fn current(
        &self,
        key: Key,
        held: Arc<PosixStorage>,
    ) -> Result<Arc<PosixStorage>, StorageError> {
        let root = key.root.display().to_string();
        match held.is_current() {
            Ok(true) => Ok(held),
            // The path is in a directory that only root can search, and root's rights are given up. Without /proc only the
            // directory of the start is known.
            Err(error) if error.errno == Errno::ACCESS => Ok(held),
            Ok(false) => match self.open_key(key) {
                Ok(opened) => {
                    info!(
                        root,
                        "the root is another directory now, which is served from here on"
                    );
                    Ok(opened)
                }
                Err(error) => {
                    if let Some(untold) = tell("another root") {
                        error!(root, %error, untold, "the root is another directory now, and cannot be opened: logins are refused");
                    }
                    Err(error)
                }
            },
            Err(error) => {
                if let Some(untold) = tell("no root") {
                    warn!(root, %error, untold, "the root is not there any more: logins are refused");
                }
                Err(error)
            }
        }
    }

    /// Opens the server's root again, which may be another directory now, and closes the roots of users. A root that cannot
    /// be opened any more, because root's rights are given up, stays. Local accounts are looked up again at their next
    /// login.
    pub(crate) fn reload(&self, config: &Config) {
        if let Some(accounts) = &self.accounts {
            accounts.renew();
        }
        let own = own_keys(config, self.accounts.is_some());
        lock(&self.opened).retain(|key, _| own.contains(key));
        for key in own {
            let root = key.root.clone();
            if let Err(error) = self.open_key(key) {
                warn!(root = %root.display(), %error, "the root cannot be opened anew");
            }
        }
    }

    fn open_key(&self, key: Key) -> Result<Arc<PosixStorage>, StorageError> {
        let options = PosixOptions {
            read_only: key.read_only,
            ..self.options
        };
        let storage = Arc::new(PosixStorage::open(&key.root, options)?);
        lock(&self.opened).insert(key, Arc::clone(&storage));
        Ok(storage)
    }
}

/// The server's root, read-only and writable, for users without a local account.
fn own_keys(config: &Config, with_brokers: bool) -> Vec<Key> {
    let anonymous = config.anonymous.as_ref();
    // A node with brokers opens the root for other users when there are some: a network file system may admit local accounts
    // only.
    let is_node = config.node.is_some() && !with_brokers;
    let reads = is_node || anonymous.is_some_and(|anonymous| !anonymous.write);
    let writes =
        is_node || config.passwords.is_some() || anonymous.is_some_and(|anonymous| anonymous.write);
    [(reads, true), (writes, false)]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, read_only)| Key {
            root: config.root.clone(),
            read_only,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gridhaul_transfer::Admission;

    use super::*;
    use crate::config::{ServeArguments, Settings};

    fn local(account: &str, root: &Path) -> NodeAccount {
        NodeAccount {
            source: gridhaul_shares::Source::at(std::net::Ipv4Addr::LOCALHOST.into()),
            name: account.to_owned(),
            account: Some(account.to_owned()),
            root: root.to_owned(),
            read_only: true,
            admission: Admission::Anyone,
        }
    }

    #[test]
    fn without_a_monitor_there_is_the_account_of_this_process() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::write(root.path().join("file"), "content").expect("written");
        let settings = Settings {
            root: Some(root.path().to_owned()),
            anonymous: Some(true),
            ..Settings::default()
        };
        let arguments = ServeArguments {
            settings,
            ..ServeArguments::default()
        };
        let config = Config::load(&arguments).expect("valid");
        let storages = Storages::open(&config, None).expect("opened");
        let own = nix::unistd::User::from_uid(nix::unistd::Uid::effective())
            .expect("a database")
            .expect("an account")
            .name;
        let files = storages.get(&local(&own, root.path())).expect("ours");
        assert_eq!(files.home, Path::new("/"));
        assert!(files.storage.open_read(Path::new("file")).is_ok());
        assert!(files.storage.remove_file(Path::new("file")).is_err());
        let error = storages
            .get(&local("no-such-account", root.path()))
            .expect_err("not ours");
        assert!(matches!(error, AttachError::Account(_)));
        assert!(error.to_string().contains(&own), "{error}");
    }
}
