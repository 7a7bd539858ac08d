//! Which local accounts may be used, and how.

use gridhaul_accounts::{AccountPolicy, BrokerLimits, MonitorOptions};

use super::resolve::{between, seconds};
use super::{ConfigError, Settings};

/// How files are opened with the rights of local accounts. A running server keeps it as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAccounts {
    /// Which accounts may be used, and their umask.
    pub monitor: MonitorOptions,
    /// How many processes act as accounts, and for how long.
    pub brokers: BrokerLimits,
}

/// What follows from settings.
pub(super) fn resolve(settings: &Settings) -> Result<LocalAccounts, ConfigError> {
    let policy = AccountPolicy::default();
    Ok(LocalAccounts {
        monitor: MonitorOptions {
            policy: AccountPolicy {
                allow_root: settings.allow_root.unwrap_or(policy.allow_root),
                allow_disabled_login: settings
                    .allow_disabled_login
                    .unwrap_or(policy.allow_disabled_login),
                least_uid: settings.least_uid.unwrap_or(policy.least_uid),
            },
            umask: settings.umask.map(|umask| umask.0),
        },
        brokers: BrokerLimits {
            brokers: between("max-brokers", settings.max_brokers, 100, 1, 10_000)?,
            idle: seconds("broker-idle-timeout", settings.broker_idle_timeout, 300)?,
        },
    })
}
