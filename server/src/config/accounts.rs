//! The local accounts that identities may use.

use gridhaul_accounts::{AccountPolicy, BrokerLimits, MonitorOptions};

use super::error::ConfigError;
use super::places::Found;
use super::ranges::{between, seconds};
use super::settings::Settings;

/// How files are opened with the rights of local accounts. Only a restart changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAccounts {
    /// The accounts that may be used, and their umask.
    pub monitor: MonitorOptions,
    /// The number of processes that act for accounts, and their lifetime.
    pub brokers: BrokerLimits,
}

/// The settings of local accounts, with defaults.
pub(super) fn resolve(errors: &mut Vec<ConfigError>, settings: &Settings) -> LocalAccounts {
    let policy = AccountPolicy::default();
    let brokers = between(errors, "max-brokers", settings.max_brokers, 100, 1, 10_000);
    LocalAccounts {
        monitor: MonitorOptions {
            policy: AccountPolicy {
                allow_root: settings.allow_root.unwrap_or(policy.allow_root),
                allow_disabled_login: settings
                    .allow_disabled_login
                    .unwrap_or(policy.allow_disabled_login),
                least_uid: settings.least_uid.unwrap_or(policy.least_uid),
            },
            pam_service: settings.pam_service.clone(),
            umask: settings.umask.map(|umask| umask.0),
            gridmapdir: settings
                .gridmapdir
                .clone()
                .or_else(|| Found::once().gridmapdir.clone()),
            brokers,
        },
        brokers: BrokerLimits {
            brokers,
            idle: seconds(
                errors,
                "broker-idle-timeout",
                settings.broker_idle_timeout,
                300,
            ),
            call: BrokerLimits::CALL,
            fresh: BrokerLimits::FRESH,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{FileMode, Seconds};

    fn resolved(settings: &Settings) -> LocalAccounts {
        let mut errors = Vec::new();
        let accounts = resolve(&mut errors, settings);
        assert!(errors.is_empty(), "{errors:?}");
        accounts
    }

    #[test]
    fn what_globus_gridftp_server_refuses_is_refused_until_it_is_allowed() {
        let accounts = resolved(&Settings::default());
        assert_eq!(accounts.monitor.policy, AccountPolicy::default());
        assert!(!accounts.monitor.policy.allow_root);
        assert_eq!(accounts.monitor.umask, None);
        let settings = Settings {
            allow_root: Some(true),
            allow_disabled_login: Some(true),
            least_uid: Some(1000),
            pam_service: Some("gridftp".to_owned()),
            umask: Some(FileMode(0o077)),
            max_brokers: Some(3),
            broker_idle_timeout: Some(Seconds(5)),
            ..Settings::default()
        };
        let accounts = resolved(&settings);
        let policy = AccountPolicy {
            allow_root: true,
            allow_disabled_login: true,
            least_uid: 1000,
        };
        assert_eq!(accounts.monitor.policy, policy);
        assert_eq!(accounts.monitor.umask, Some(0o077));
        assert_eq!(accounts.monitor.pam_service.as_deref(), Some("gridftp"));
        let brokers = BrokerLimits {
            brokers: 3,
            idle: Duration::from_secs(5),
            call: BrokerLimits::CALL,
            fresh: BrokerLimits::FRESH,
        };
        assert_eq!(accounts.brokers, brokers);
        assert_eq!(accounts.monitor.brokers, 3);
    }

    #[test]
    fn there_is_at_least_one_broker() {
        let settings = Settings {
            max_brokers: Some(0),
            ..Settings::default()
        };
        let mut errors = Vec::new();
        resolve(&mut errors, &settings);
        let error = errors[0].to_string();
        assert!(
            error.starts_with("max-brokers must be between 1"),
            "{error}"
        );
    }
}
