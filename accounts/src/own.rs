//! The server's own account, the only one without root.

use std::path::{Path, PathBuf};

use gridhaul_storage::{PosixOptions, PosixStorage, Rights};
use nix::unistd::Uid;

use crate::account::LocalAccount;
use crate::client::{AccountError, AccountRequest};
use crate::refusal::Refusal;

/// Opens the files of the account of this process, and returns the initial directory of its sessions, as a path beneath the
/// root.
///
/// # Errors
///
/// When another account is requested, or the root cannot be opened.
pub fn open_own(request: &AccountRequest) -> Result<(PosixStorage, PathBuf), AccountError> {
    let own = LocalAccount::own();
    let account = match LocalAccount::find(&request.account) {
        // Two names may have the same uid.
        Ok(account) if account.uid == Uid::effective().as_raw() => account,
        _ => {
            return Err(AccountError::NotOurs {
                own: own.map_or_else(|| Uid::effective().to_string(), |own| own.name),
                wanted: request.account.clone(),
            });
        }
    };
    let root = account.expand(&request.root);
    let options = PosixOptions {
        read_only: request.read_only,
        file_mode: request.file_mode,
        rights: Rights::Account,
        ..PosixOptions::default()
    };
    let storage = PosixStorage::open(&root, options).map_err(|error| Refusal::Directory {
        account: account.name.clone(),
        root: root.display().to_string(),
        reason: error.reason(),
    })?;
    let home = account.home_beneath(&root, &storage);
    Ok((storage, home))
}

/// The directory that [`open_own`] opens for a root with `$HOME` and `$USER` in it.
pub fn own_directory(root: &Path) -> PathBuf {
    LocalAccount::own().map_or_else(|| root.to_owned(), |own| own.expand(root))
}

#[cfg(test)]
mod tests {
    use gridhaul_storage::Storage as _;

    use super::*;

    fn request(account: &str, root: &Path) -> AccountRequest {
        AccountRequest {
            account: account.to_owned(),
            root: root.to_owned(),
            read_only: false,
            file_mode: 0o644,
        }
    }

    #[test]
    fn without_root_there_is_one_account() {
        let own = LocalAccount::own().expect("an account that is known").name;
        let root = tempfile::tempdir().unwrap();
        let (storage, home) = open_own(&request(&own, root.path())).unwrap();
        storage.stat(Path::new("/")).unwrap();
        assert_eq!(home, Path::new("/"));
        for other in ["daemon", "no-such-account"] {
            let error = open_own(&request(other, root.path())).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("'{own}'")), "{text}");
            assert!(text.contains(&format!("'{other}'")), "{text}");
        }
        let missing = root.path().join("missing");
        let error = open_own(&request(&own, &missing)).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
