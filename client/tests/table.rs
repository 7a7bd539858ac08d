//! The cases of globus-url-copy in the table of interoperability, with `gridhaul guc` and with `gridhaul copy` in its place.
//!
//! Only those that take little time; `make interop-clients` runs all of them.

use std::sync::{Arc, Mutex, Weak};

use gridhaul_interop::cases::{Case, Testbed, run, table};
use gridhaul_interop::{Copier, Kind};

macro_rules! groups {
    ($($guc:ident, $copy:ident: $prefix:literal,)*) => {
        $(
            #[test]
            fn $guc() {
                pass(&GUC, Copier::Guc(env!("CARGO_BIN_EXE_gridhaul").into()), $prefix);
            }

            #[test]
            fn $copy() {
                pass(&COPY, Copier::Copy(env!("CARGO_BIN_EXE_gridhaul").into()), $prefix);
            }
        )*
    };
}

groups! {
    guc_get, copy_get: "globus-url-copy/get ",
    guc_put, copy_put: "globus-url-copy/put ",
    guc_third_party, copy_third_party: "globus-url-copy/third-party ",
    guc_options, copy_options: "globus-url-copy/options ",
    guc_partial, copy_partial: "globus-url-copy/partial ",
    guc_names, copy_names: "globus-url-copy/names ",
    guc_trees, copy_trees: "globus-url-copy/trees ",
    guc_sync, copy_sync: "globus-url-copy/sync ",
    guc_restart, copy_restart: "globus-url-copy/restart ",
    guc_errors, copy_errors: "globus-url-copy/errors ",
    guc_gsi_third_party, copy_gsi_third_party: "gsi/third-party ",
    guc_gsi_stacks, copy_gsi_stacks: "gsi/stacks ",
    guc_gsi_accounts, copy_gsi_accounts: "gsi/accounts ",
    guc_gsi_again, copy_gsi_again: "gsi/globus-url-copy/",
    guc_nodes, copy_nodes: "nodes/globus-url-copy ",
}

/// Parts of names of cases that move many bytes, wait for timers, or differ little from others.
const SLOW: [&str; 13] = [
    "100000000 bytes",
    "262143 bytes",
    "262144 bytes",
    "1048575 bytes",
    "1048576 bytes",
    "-fast -rst, broken",
    "-rst, broken at 150",
    "-tcp-bs",
    "-bs ",
    "-dcsafe",
    "-p 16",
    "-p 8",
    "4 nodes",
];

/// The number of concurrent cases of a group, as in the table of globus-url-copy itself.
const WORKERS: usize = 3;

static GUC: Mutex<Weak<Testbed>> = Mutex::new(Weak::new());
static COPY: Mutex<Weak<Testbed>> = Mutex::new(Weak::new());

/// Runs the cases of one group against both servers. Cases that differ on purpose must differ.
fn pass(testbed: &Mutex<Weak<Testbed>>, copier: Copier, prefix: &str) {
    let is_slow = |case: &Case| SLOW.iter().any(|part| case.name.contains(part));
    let cases: Vec<Case> = table::cases()
        .into_iter()
        .filter(|case| case.name.starts_with(prefix) && !is_slow(case))
        .collect();
    assert!(!cases.is_empty(), "no case begins with {prefix}");
    let testbed = shared(testbed, &copier);
    let mut failures = String::new();
    let mut differences = 0;
    run(
        &cases,
        &[Kind::Gridhaul, Kind::Globus],
        WORKERS,
        &testbed,
        |row| {
            if let Some(reason) = row.failure_with(&copier) {
                failures += &format!("\nFAIL {}\n{reason}\n", row.name);
            } else if let Some(reason) = copier.difference(&row.name) {
                differences += 1;
                eprintln!("{} differs: {reason}", row.name);
            } else if let Some(reason) = row.not_run() {
                eprintln!("{} was not run: {reason}", row.name);
            }
        },
    );
    eprintln!(
        "{}: {} cases, {differences} differ",
        copier.name(),
        cases.len()
    );
    assert!(failures.is_empty(), "{failures}");
}

/// The servers that concurrent groups share, which end with the last of these groups.
fn shared(present: &Mutex<Weak<Testbed>>, copier: &Copier) -> Arc<Testbed> {
    let mut present = present.lock().unwrap();
    present.upgrade().unwrap_or_else(|| {
        let testbed = Testbed::new().unwrap().with_copier(copier.clone());
        let testbed = Arc::new(testbed);
        *present = Arc::downgrade(&testbed);
        testbed
    })
}
