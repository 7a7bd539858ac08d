//! Which local accounts may be used, and why one may not.
//!
//! The rules are those of globus-gridftp-server, so that a site's map keeps its meaning: root is refused,
//! and so is an account whose shell is no program. A shell like `nologin` is one, and a locked
//! password says nothing: pool accounts have both. Stricter than there, an account that has expired is
//! refused, and so are accounts of the system, by their number.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gridhaul_storage::StorageError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::account::LocalAccount;
use crate::process;

/// Which local accounts may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountPolicy {
    /// Accounts with the number 0 as well.
    pub allow_root: bool,
    /// Accounts that are disabled as well: that have expired, or whose shell is no program.
    pub allow_disabled_login: bool,
    /// Accounts with a lower number are refused, root apart, which has its own rule.
    pub least_uid: u32,
}

/// The first number that distributions give to people and pool accounts (`UID_MIN` of login.defs(5)). Accounts below it are
/// those of services, which a mistake in a map must not hand out.
const LEAST_UID: u32 = 1000;

impl Default for AccountPolicy {
    fn default() -> Self {
        Self {
            allow_root: false,
            allow_disabled_login: false,
            least_uid: LEAST_UID,
        }
    }
}

/// Why a local account cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The account database does not know it.
    #[error("there is no local account '{0}': make one, or map to another")]
    Unknown(String),
    /// It is root, or another account with root's number.
    #[error("'{0}' is root, and root is not allowed: map to another account, or set allow-root")]
    Root(String),
    /// It is a system account.
    #[error(
        "the account '{account}' has the number {uid}, and least-uid allows {least} and above: map to another account, or \
         lower least-uid"
    )]
    System {
        /// The account.
        account: String,
        /// Its number.
        uid: u32,
        /// The least number that is allowed.
        least: u32,
    },
    /// Its shell is no program.
    #[error(
        "the account '{account}' is disabled: its shell '{shell}' {why} (allow-disabled-login skips \
         this check)"
    )]
    Shell {
        /// The account.
        account: String,
        /// Its shell.
        shell: String,
        /// What is wrong with it.
        why: String,
    },
    /// It has expired.
    #[error("the account '{account}' has expired (allow-disabled-login skips this check)")]
    Expired {
        /// The account.
        account: String,
    },
    /// PAM's account stage refuses it.
    #[error("PAM's service '{service}' refuses the account '{account}': {reason}")]
    Pam {
        /// The account.
        account: String,
        /// The service.
        service: String,
        /// PAM's words.
        reason: String,
    },
    /// Its root cannot be opened, as this account.
    #[error("the account '{account}' cannot open its root {root}: {reason}")]
    Directory {
        /// The account.
        account: String,
        /// The directory.
        root: String,
        /// The kernel's words.
        reason: String,
    },
    /// The machine refuses what it takes to act as the account.
    #[error("the server cannot act as '{account}': {what}: {reason}")]
    Machine {
        /// The account.
        account: String,
        /// What was refused.
        what: String,
        /// The kernel's words.
        reason: String,
    },
}

impl AccountPolicy {
    /// Whether the account of this name may be used now, as far as the rights of this process show:
    /// when an account expires is for root to read.
    pub fn check_name(&self, name: &str) -> Result<(), Refusal> {
        self.check(&LocalAccount::find(name)?)
    }

    /// Whether an account may be used now. Reads the shadow database, which takes root's rights.
    pub(crate) fn check(&self, account: &LocalAccount) -> Result<(), Refusal> {
        let name = || account.name.clone();
        match account.uid {
            0 if !self.allow_root => return Err(Refusal::Root(name())),
            uid if uid != 0 && uid < self.least_uid => {
                return Err(Refusal::System {
                    account: name(),
                    uid,
                    least: self.least_uid,
                });
            }
            _ => {}
        }
        if self.allow_disabled_login {
            return Ok(());
        }
        if let Err(why) = check_shell(&account.shell) {
            return Err(Refusal::Shell {
                account: name(),
                shell: account.shell.display().to_string(),
                why,
            });
        }
        if process::expiry_day(&account.name).is_some_and(|day| day <= today()) {
            return Err(Refusal::Expired { account: name() });
        }
        Ok(())
    }
}

/// As globus-gridftp-server 13.24 does: the shell exists, is a file, and has an execute bit.
fn check_shell(shell: &Path) -> Result<(), String> {
    let facts = std::fs::metadata(shell).map_err(|error| match error.raw_os_error() {
        Some(number) => format!(
            "cannot be used: {}",
            words(Errno::from_raw_os_error(number))
        ),
        None => "cannot be used".to_owned(),
    })?;
    if !facts.is_file() {
        return Err("is no file".to_owned());
    }
    if facts.permissions().mode() & 0o111 == 0 {
        return Err("cannot be executed".to_owned());
    }
    Ok(())
}

/// The day, in days since 1970.
fn today() -> i64 {
    const DAY: u64 = 24 * 60 * 60;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs() / DAY).unwrap_or(i64::MAX)
    })
}

/// The operating system's words for an error.
pub(crate) fn words(errno: Errno) -> String {
    StorageError::new("", errno).reason()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(uid: u32, shell: &str) -> LocalAccount {
        LocalAccount {
            name: "no-such-account".to_owned(),
            uid,
            gid: uid,
            home: "/".into(),
            shell: shell.into(),
        }
    }

    #[test]
    fn root_is_refused_unless_allowed() {
        let root = account(0, "/bin/sh");
        let policy = AccountPolicy::default();
        assert!(matches!(policy.check(&root), Err(Refusal::Root(_))));
        let policy = AccountPolicy {
            allow_root: true,
            least_uid: 1000,
            ..policy
        };
        assert_eq!(policy.check(&root), Ok(()));
    }

    #[test]
    fn accounts_of_the_system_are_refused_unless_allowed() {
        let policy = AccountPolicy::default();
        assert_eq!(policy.check(&account(1000, "/bin/sh")), Ok(()));
        let refusal = policy.check(&account(999, "/bin/sh")).unwrap_err();
        assert!(refusal.to_string().contains("lower least-uid"), "{refusal}");
        let policy = AccountPolicy {
            least_uid: 1,
            ..policy
        };
        assert_eq!(policy.check(&account(1, "/bin/sh")), Ok(()));
    }

    #[test]
    fn a_shell_must_be_a_program_that_can_be_executed() {
        let policy = AccountPolicy::default();
        for (shell, why) in [
            ("", "No such file or directory"),
            ("/nonexistent/sh", "No such file or directory"),
            ("/dev/null", "is no file"),
            ("/etc", "is no file"),
            ("/etc/passwd", "cannot be executed"),
        ] {
            let refusal = policy.check(&account(1000, shell)).unwrap_err();
            assert!(refusal.to_string().contains(why), "{refusal}");
            let policy = AccountPolicy {
                allow_disabled_login: true,
                ..policy
            };
            assert_eq!(policy.check(&account(1000, shell)), Ok(()));
        }
    }
}
