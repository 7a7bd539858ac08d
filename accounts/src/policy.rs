//! Which local accounts may be used.
//!
//! The rules are those of globus-gridftp-server, so that a site's map keeps its meaning: root is refused, and so is an
//! account whose shell is not an executable file. `nologin` is executable, and a locked password is not examined: pool
//! accounts have both. Stricter than there, expired accounts and system accounts (by uid) are refused as well.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::account::LocalAccount;
use crate::process;
use crate::refusal::{Refusal, os_error};

/// Which local accounts may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountPolicy {
    /// Allows accounts with uid 0.
    pub allow_root: bool,
    /// Allows disabled accounts: expired ones, and those whose shell is not an executable file.
    pub allow_disabled_login: bool,
    /// Refuses accounts with a lower uid. Root has its own rule, [`allow_root`](Self::allow_root).
    pub least_uid: u32,
}

/// The first uid of people and pool accounts (`UID_MIN` of login.defs(5)). Lower ones belong to services, which a
/// mistake in a map must not make accessible.
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

impl AccountPolicy {
    /// Checks whether the account of this name may be used now. Expiry is checked only if this process may read the
    /// shadow database.
    ///
    /// # Errors
    ///
    /// When there is no such account, or it may not be used.
    pub fn check_name(&self, name: &str) -> Result<(), Refusal> {
        self.check(&LocalAccount::find(name)?)
    }

    /// Checks whether an account may be used now. Reads the shadow database, which only root may do.
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

/// The check of globus-gridftp-server 13.24: the shell exists, is a file, and has an execute bit.
fn check_shell(shell: &Path) -> Result<(), String> {
    let facts = std::fs::metadata(shell).map_err(|error| match error.raw_os_error() {
        Some(number) => format!(
            "cannot be used: {}",
            os_error(Errno::from_raw_os_error(number))
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

/// Days since 1970.
fn today() -> i64 {
    const DAY: u64 = 24 * 60 * 60;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs() / DAY).unwrap_or(i64::MAX)
    })
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
