//! Orders to the monitor.

use gridhaul_storage::PosixOptions;

use super::Input;
use crate::account::LocalAccount;
use crate::messages::{Order, Start};
use crate::policy::AccountPolicy;

/// Names of accounts that most machines have, and invalid ones.
const NAMES: &[&str] = &[
    "root", "daemon", "bin", "nobody", "sshd", "", "root\0", "\u{fc}", "../root",
];

/// Checks the accounts of arbitrary orders and of a valid one.
pub fn orders(input: &[u8]) {
    let mut input = Input(input);
    let least_uid = u32::from(input.byte()) * 8;
    let policy = AccountPolicy {
        allow_root: false,
        allow_disabled_login: input.byte() < 128,
        least_uid,
    };
    let start = Start {
        account: input.one_of(NAMES),
        root: b"/srv",
        read_only: false,
        file_mode: 0o666,
        directory_mode: PosixOptions::default().directory_mode,
    };
    let sound = postcard::to_stdvec(&Order::Broker(start)).expect("an order");
    for message in [&sound, input.0] {
        let Ok(Order::Broker(start)) = postcard::from_bytes(message) else {
            continue;
        };
        let Ok(account) = LocalAccount::find(start.account) else {
            continue;
        };
        if policy.check(&account).is_ok() {
            assert!(account.uid != 0 && account.uid >= least_uid, "{account:?}");
        }
        let _ = account.expand(crate::messages::path(start.root));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::tests::over_arbitrary_bytes;

    #[test]
    fn no_order_gets_an_account_that_the_rules_refuse() {
        over_arbitrary_bytes(500, 80, orders);
    }
}
