//! Runs the tests of `PosixStorage` on `AccountStorage`: the results through a broker must be the same. Tests that interfere
//! between two entries of a removal or of a listing are left out, because a broker polls less often and reads ahead.
//!
//! The account is root, because the tests set up files as root. Without root no test runs, and a message is printed.

#[path = "../../../storage/tests/posix/attributes.rs"]
mod attributes;
#[path = "../../../storage/tests/posix/direct.rs"]
mod direct;
#[path = "../../../storage/tests/posix/escape.rs"]
mod escape;
#[path = "../../../storage/tests/posix/fixture.rs"]
mod fixture;
#[path = "../../../storage/tests/posix/kinds.rs"]
mod kinds;
#[path = "../../../storage/tests/posix/listing.rs"]
mod listing;
#[path = "../../../storage/tests/posix/model.rs"]
mod model;
#[path = "../common/monitored.rs"]
mod monitored;
#[path = "../../../storage/tests/posix/names.rs"]
mod names;
#[path = "../../../storage/tests/posix/read_only.rs"]
mod read_only;
#[path = "../../../storage/tests/posix/uploads.rs"]
mod uploads;

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use fixture::*;
use gridhaul_accounts::{
    AccountPolicy, AccountRequest, AccountStorage, Accounts, BrokerLimits, ListedFiles,
    MonitorOptions,
};
use gridhaul_storage::{PosixOptions, StorageError};

/// The storage under test.
type Files = AccountStorage;

static ACCOUNTS: LazyLock<Accounts> = LazyLock::new(|| {
    let monitor = monitored::take_monitor();
    let limits = BrokerLimits {
        brokers: 16,
        idle: Duration::from_secs(60),
        call: BrokerLimits::CALL,
        fresh: BrokerLimits::FRESH,
    };
    Accounts::new(std::sync::Arc::new(monitor), limits)
});

fn open(root: &Path, options: PosixOptions) -> Result<Files, StorageError> {
    let request = AccountRequest {
        account: "root".to_owned(),
        root: root.to_owned(),
        read_only: options.read_only,
        file_mode: options.file_mode,
    };
    Ok(ACCOUNTS.open(&request).expect("root may"))
}

fn monitor_options() -> Result<(MonitorOptions, ListedFiles), String> {
    let policy = AccountPolicy {
        allow_root: true,
        ..AccountPolicy::default()
    };
    let options = MonitorOptions {
        gridmapdir: None,
        policy,
        pam_service: None,
        umask: None,
        brokers: 16,
    };
    Ok((options, ListedFiles::default()))
}
