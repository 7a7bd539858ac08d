//! How many brokers run, and for how long.

use std::time::Duration;

/// Number and lifetime of brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerLimits {
    /// Brokers at a time. A further one is started only if an idle one can be ended.
    pub brokers: usize,
    /// An idle broker ends after this time. The next call starts another.
    pub idle: Duration,
    /// The time limit of a call, except for the removal of a tree, which has none. A broker that exceeds it is taken for
    /// one whose file system hangs.
    pub call: Duration,
    /// How long a broker serves new logins. A later login has another one started, which looks the account up again: its
    /// groups may have changed, or it may have been disabled. Existing sessions move to the new broker.
    pub fresh: Duration,
}

impl BrokerLimits {
    /// The default of [`fresh`](Self::fresh).
    pub const FRESH: Duration = Duration::from_secs(60);

    /// The default of [`call`](Self::call): enough for a network file system that retransmits lost requests.
    pub const CALL: Duration = Duration::from_secs(60);
}

/// Brokers of an account that may finish calls and listings while a newer one serves its sessions.
pub(super) const MOST_FINISHING: usize = 2;

/// The share of one account in a total of `brokers`: the others remain for other accounts. An account has more than one
/// if it is granted several roots, and while replaced brokers finish.
pub(crate) fn brokers_of_account(brokers: usize) -> usize {
    (brokers / 4).max(1 + MOST_FINISHING)
}
