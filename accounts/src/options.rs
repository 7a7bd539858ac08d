//! The configuration of the monitor and the brokers that it starts.

use std::path::PathBuf;

use crate::policy::AccountPolicy;

/// Options of all brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorOptions {
    /// The directory of leases of pool accounts, if there are any.
    pub gridmapdir: Option<PathBuf>,
    /// Which accounts may be used.
    pub policy: AccountPolicy,
    /// The PAM service whose account stage must accept the account as well.
    pub pam_service: Option<String>,
    /// The umask of brokers; `None` leaves that of this process.
    pub umask: Option<u32>,
    /// The number of brokers at a time, as in [`BrokerLimits`](crate::BrokerLimits). The monitor allows twice as many,
    /// because a broker that was told to end may still run when its successor starts.
    pub brokers: usize,
}
