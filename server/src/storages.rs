//! The files of each account, opened once for all of its sessions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_accounts::{AccountRequest, Accounts, BrokerSource, open_own};
use gridhaul_storage::{PosixOptions, PosixStorage, Rights, StorageError};
use gridhaul_transfer::{AccountFiles, AttachError, NodeAccount};
use rustix::io::Errno;
use tracing::{error, info, warn};

use crate::config::Config;

/// Holds the root directories that sessions use with the server's own rights: the server's own from the
/// start, so that it may lie where only root gets to, those of single users when they first log in. Files
/// of local accounts are opened by processes that act as the account.
#[derive(Debug)]
pub(crate) struct Storages {
    options: PosixOptions,
    opened: Mutex<HashMap<Key, Arc<PosixStorage>>>,
    /// Without it there is one account, that of this process.
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
        for key in own_keys(config) {
            storages.open_key(key)?;
        }
        Ok(storages)
    }

    /// For the front process, which opens none.
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

    /// Processes that act for local accounts at this moment.
    pub(crate) fn brokers(&self) -> usize {
        self.accounts.as_ref().map_or(0, Accounts::running)
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

    /// The storage of a root that is held, or another one if its path leads elsewhere by now: a directory was put in its
    /// place, or a file system was mounted there. Sessions that have the old one keep it.
    ///
    /// # Errors
    ///
    /// When what is there now cannot be opened. The old directory is not served: users would read and write files
    /// at a place that has no path any more.
    fn current(
        &self,
        key: Key,
        held: Arc<PosixStorage>,
    ) -> Result<Arc<PosixStorage>, StorageError> {
        let root = key.root.display().to_string();
        match held.is_current() {
            Ok(true) => Ok(held),
            // Only root gets to it, whose rights are given up, and without /proc all that is known is what was there at the start.
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
                    error!(root, %error, "the root is another directory now, and cannot be opened: logins are refused");
                    Err(error)
                }
            },
            Err(error) => {
                warn!(root, %error, "the root is not there any more: logins are refused");
                Err(error)
            }
        }
    }

    /// Opens the server's root anew, which may be another directory now, and forgets the roots of
    /// users. What cannot be opened any more, because root's rights are gone, stays as it is. Local accounts
    /// are looked up again when they next log in.
    pub(crate) fn reload(&self, config: &Config) {
        if let Some(accounts) = &self.accounts {
            accounts.renew();
        }
        let own = own_keys(config);
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

/// The server's root, one to read only and one to write, without the rights of an account.
fn own_keys(config: &Config) -> Vec<Key> {
    let anonymous = config.anonymous.as_ref();
    let reads = anonymous.is_some_and(|anonymous| !anonymous.write);
    let writes = config.passwords.is_some() || anonymous.is_some_and(|anonymous| anonymous.write);
    [(reads, true), (writes, false)]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .map(|(_, read_only)| Key {
            root: config.root.clone(),
            read_only,
        })
        .collect()
}

/// Every insertion is whole, so a panic elsewhere does not spoil the map.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            config: None,
            settings,
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
