//! The table as tests: one for each group of cases, which lists every failed case.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use gridhaul_interop::Kind;
use gridhaul_interop::cases::{Case, Testbed, run, table};

macro_rules! groups {
    ($($test:ident: $prefix:literal,)*) => {
        const PREFIXES: &[&str] = &[$($prefix),*];
        $(
            #[test]
            fn $test() {
                pass($prefix);
            }
        )*
    };
}

groups! {
    globus_url_copy_get: "globus-url-copy/get ",
    globus_url_copy_put: "globus-url-copy/put ",
    globus_url_copy_third_party: "globus-url-copy/third-party ",
    globus_url_copy_options: "globus-url-copy/options ",
    globus_url_copy_partial: "globus-url-copy/partial ",
    globus_url_copy_sparse: "globus-url-copy/sparse ",
    globus_url_copy_names: "globus-url-copy/names ",
    globus_url_copy_trees: "globus-url-copy/trees ",
    globus_url_copy_sync: "globus-url-copy/sync ",
    globus_url_copy_restart: "globus-url-copy/restart ",
    globus_url_copy_errors: "globus-url-copy/errors ",
    gfal_copy_get: "gfal-copy/get ",
    gfal_copy_put: "gfal-copy/put ",
    gfal_copy_third_party: "gfal-copy/third-party ",
    gfal_names: "gfal/",
    gfal2_python: "gfal2-python/",
    ftplib: "ftplib/",
    curl: "curl/",
    lftp: "lftp/",
    rclone: "rclone/",
    arc: "arc/",
    jglobus: "jglobus/",
    tls: "tls/",
    gsi_get: "gsi/get ",
    gsi_put: "gsi/put ",
    gsi_third_party: "gsi/third-party ",
    gsi_stacks: "gsi/stacks ",
    gsi_accounts: "gsi/accounts ",
    gsi_refused: "gsi/refused ",
    gsi_globus_url_copy: "gsi/globus-url-copy/",
    gsi_gfal2: "gsi/gfal2 ",
    nodes_of_every_number: "nodes/globus-url-copy ",
    nodes_third_party: "nodes/third-party ",
    nodes_stacks: "nodes/stacks ",
    nodes_restart: "nodes/restart ",
    nodes_errors: "nodes/errors ",
    nodes_gfal_copy: "nodes/gfal-copy ",
    nodes_arc: "nodes/arccp ",
    nodes_jglobus: "nodes/jglobus ",
}

#[test]
fn every_case_is_in_one_group_and_has_a_unique_name() {
    let mut names = BTreeSet::new();
    for case in table::cases() {
        let groups = PREFIXES
            .iter()
            .filter(|prefix| case.name.starts_with(**prefix))
            .count();
        assert_eq!(groups, 1, "{}", case.name);
        assert!(names.insert(case.name.clone()), "twice: {}", case.name);
    }
}

/// The number of concurrent cases of a group. Groups also run concurrently, but cases mostly wait for timers and other processes.
const WORKERS: usize = 3;

/// Runs the cases of one group against both servers.
fn pass(prefix: &str) {
    let cases: Vec<Case> = table::cases()
        .into_iter()
        .filter(|case| case.name.starts_with(prefix))
        .collect();
    assert!(!cases.is_empty(), "no case begins with {prefix}");
    let testbed = testbed();
    let mut failures = String::new();
    run(
        &cases,
        &[Kind::Gridhaul, Kind::Globus],
        WORKERS,
        &testbed,
        |row| {
            if let Some(reason) = row.failure() {
                failures += &format!("\nFAIL {}\n{reason}\n", row.name);
            }
            if let Some(reason) = row.not_run() {
                eprintln!("{} was not run: {reason}", row.name);
            }
        },
    );
    assert!(failures.is_empty(), "{failures}");
}

/// The servers that concurrent groups share, which end with the last of these groups.
fn testbed() -> Arc<Testbed> {
    static PRESENT: Mutex<Weak<Testbed>> = Mutex::new(Weak::new());
    let mut present = PRESENT.lock().unwrap();
    present.upgrade().unwrap_or_else(|| {
        let testbed = Arc::new(Testbed::new().unwrap());
        *present = Arc::downgrade(&testbed);
        testbed
    })
}
