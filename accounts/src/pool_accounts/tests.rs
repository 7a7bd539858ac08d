use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::thread;

use proptest::prelude::*;
use tempfile::TempDir;

use super::names::lease_name;
use super::*;

/// More than any test leases, without a limit of the rate.
fn lease(directory: &Path, identity: &str, pool: &str) -> Result<String, LeaseError> {
    let budget = LeaseBudget::of(100_000, Duration::from_millis(1)).expect("memory");
    super::lease(directory, identity, pool, &budget)
}

/// Whether this is root: the directory and those above must belong to root.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        gridhaul_skip::skipped("this needs root");
    }
    is_root
}

fn directory(accounts: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for account in accounts {
        File::create(directory.path().join(account)).expect("made");
    }
    directory
}

#[test]
fn leases_have_the_names_of_lcmaps() {
    // The example of lcmaps_poolaccount.mod(8).
    let identity = "/DC=org/DC=terena/DC=tcs/C=NL/O=Nikhef/CN=Oscar Koeroo okoeroo@nikhef.nl";
    assert_eq!(
        lease_name(identity),
        "%2fdc%3dorg%2fdc%3dterena%2fdc%3dtcs%2fc%3dnl%2fo%3dnikhef%2fcn%3doscar%20koeroo%20okoeroo%40nikhef%2enl"
    );
}

#[test]
fn an_identity_keeps_its_account_and_a_full_pool_is_refused() {
    if !is_root() {
        return;
    }
    let site = directory(&[
        "atlas001",
        "atlas002",
        "atlasprd001",
        "cms001",
        "atlas",
        "atlas00x",
    ]);
    let lease = |identity: &str, pool: &str| lease(site.path(), identity, pool);
    let first = lease("/CN=a", "atlas").expect("free");
    let second = lease("/CN=b", "atlas").expect("free");
    assert_ne!(first, second);
    for account in [&first, &second] {
        assert!(
            ["atlas001", "atlas002"].contains(&account.as_str()),
            "{account}"
        );
    }
    assert_eq!(lease("/CN=a", "atlas"), Ok(first.clone()));
    assert_eq!(lease("/cn=A", "atlas"), Ok(first.clone()), "one name");
    assert_eq!(lease("/CN=c", "atlas"), Err(LeaseError::Exhausted));
    assert_eq!(count_pool(site.path(), "atlas"), Ok((2, 0)));
    assert!(matches!(
        lease("/CN=a", "cms"),
        Err(LeaseError::OtherPool { .. })
    ));
    assert_eq!(lease("/CN=c", "lhcb"), Err(LeaseError::Exhausted));
    fs::remove_file(site.path().join("%2fcn%3da")).expect("taken back");
    assert_eq!(lease("/CN=c", "atlas"), Ok(first));
}

#[test]
fn a_lease_of_another_program_is_honoured_and_marked_as_used() {
    if !is_root() {
        return;
    }
    let site = directory(&["atlas001", "atlas002"]);
    let at = |name: &str| site.path().join(name);
    fs::hard_link(at("atlas002"), at("%2fcn%3da")).expect("linked");
    let long_ago = File::options()
        .write(true)
        .open(at("atlas002"))
        .expect("opened");
    long_ago.set_modified(std::time::UNIX_EPOCH).expect("set");
    assert_eq!(
        lease(site.path(), "/CN=a", "atlas"),
        Ok("atlas002".to_owned())
    );
    assert!(fs::metadata(at("%2fcn%3da")).expect("there").mtime() > 0);
}

#[test]
fn what_is_inconsistent_is_refused() {
    if !is_root() {
        return;
    }
    let site = directory(&["atlas001", "x"]);
    let at = |name: &str| site.path().join(name);
    fs::hard_link(at("atlas001"), at("%2fcn%3da")).expect("linked");
    fs::hard_link(at("atlas001"), at("%2fcn%3db")).expect("linked");
    for identity in ["/CN=a", "/CN=b"] {
        let error = lease(site.path(), identity, "atlas");
        assert!(
            matches!(error, Err(LeaseError::Inconsistent { .. })),
            "{error:?}"
        );
    }
    File::create(at("%2fcn%3dc")).expect("made");
    std::os::unix::fs::symlink("atlas001", at("%2fcn%3dd")).expect("linked");
    for identity in ["/CN=c", "/CN=d"] {
        let error = lease(site.path(), identity, "atlas");
        assert!(
            matches!(error, Err(LeaseError::Inconsistent { .. })),
            "{error:?}"
        );
    }
    for pool in ["", "../x", "a/b", ".", "-a", "%2f", &"a".repeat(40)] {
        assert_eq!(lease(site.path(), "/CN=e", pool), Err(LeaseError::PoolName));
    }
    let long = lease(site.path(), &"/".repeat(100), "atlas");
    assert_eq!(long, Err(LeaseError::IdentityTooLong));
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o777)).expect("set");
    assert_eq!(
        lease(site.path(), "/CN=e", "atlas"),
        Err(LeaseError::Exposed)
    );
}

/// `atlas9` would be an account of the pool `atlas`, and `atlas001` is one.
#[test]
fn an_identity_never_becomes_the_name_of_an_account() {
    if !is_root() {
        return;
    }
    let site = directory(&["atlas001", "atlas002"]);
    for identity in ["atlas001", "atlas9", "CN=a", "", " /CN=a"] {
        let leased = lease(site.path(), identity, "atlas");
        assert_eq!(leased, Err(LeaseError::Identity), "{identity:?}");
    }
    assert_eq!(fs::read_dir(site.path()).expect("read").count(), 2);
    assert_eq!(count_pool(site.path(), "atlas"), Ok((2, 2)));
}

#[test]
fn new_leases_are_limited_in_time_and_old_ones_are_not() {
    if !is_root() {
        return;
    }
    let site = directory(&["atlas001", "atlas002", "atlas003"]);
    let budget = LeaseBudget::of(2, Duration::from_secs(3600)).expect("memory");
    let lease = |identity: &str| super::lease(site.path(), identity, "atlas", &budget);
    let first = lease("/CN=a").expect("free");
    lease("/CN=b").expect("free");
    assert_eq!(lease("/CN=c"), Err(LeaseError::TooFast));
    assert_eq!(lease("/CN=a"), Ok(first));
    assert_eq!(count_pool(site.path(), "atlas"), Ok((3, 1)));
    let budget = LeaseBudget::of(1, Duration::from_millis(1)).expect("memory");
    while super::lease(site.path(), "/CN=c", "atlas", &budget).is_err() {
        thread::yield_now();
    }
}

#[test]
fn a_directory_that_others_can_replace_is_refused() {
    if !is_root() {
        return;
    }
    let site = tempfile::tempdir().expect("a directory");
    let above = site.path().join("above");
    let pools = above.join("gridmapdir");
    fs::create_dir_all(&pools).expect("made");
    File::create(pools.join("atlas001")).expect("made");
    let set = |mode| fs::set_permissions(&above, fs::Permissions::from_mode(mode)).expect("set");
    set(0o777);
    assert_eq!(lease(&pools, "/CN=a", "atlas"), Err(LeaseError::Exposed));
    set(0o755);
    std::os::unix::fs::chown(&above, Some(54_321), None).expect("given");
    assert_eq!(lease(&pools, "/CN=a", "atlas"), Err(LeaseError::Exposed));
    // A link in a directory of another account leads to no directory either.
    let link = above.join("link");
    std::os::unix::fs::symlink("gridmapdir", &link).expect("linked");
    assert_eq!(lease(&link, "/CN=a", "atlas"), Err(LeaseError::Exposed));
    std::os::unix::fs::chown(&above, Some(0), None).expect("given");
    assert_eq!(lease(&link, "/CN=a", "atlas"), Ok("atlas001".to_owned()));
}

/// The environment variable by which the test below runs itself as another process.
const CHILD: &str = "GRIDHAUL_TEST_POOL";

const THREADS: usize = 8;

/// Leases an account for each of these identities in threads.
fn lease_all(path: &Path, identities: &[String]) -> Vec<(String, Result<String, LeaseError>)> {
    thread::scope(|scope| {
        let leases: Vec<_> = (0..THREADS)
            .map(|thread| {
                let own = identities
                    .iter()
                    .cycle()
                    .skip(thread * 7)
                    .take(identities.len());
                scope.spawn(move || {
                    let leased = own.map(|one| (one.clone(), lease(path, one, "pool")));
                    leased.collect::<Vec<_>>()
                })
            })
            .collect();
        leases
            .into_iter()
            .flat_map(|one| one.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn every_identity_gets_one_account_and_no_account_two_identities() {
    const IDENTITIES: usize = 40;

    if !is_root() {
        return;
    }
    let identities: Vec<String> = (0..IDENTITIES).map(|n| format!("/CN=user {n}")).collect();
    if let Ok(path) = std::env::var(CHILD) {
        for (identity, leased) in lease_all(Path::new(&path), &identities) {
            println!("LEASED {identity}\t{}", leased.expect("free"));
        }
        return;
    }
    let names: Vec<String> = (0..IDENTITIES).map(|n| format!("pool{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let site = directory(&names);
    let children: Vec<_> = (0..3)
        .map(|_| {
            let program = std::env::current_exe().expect("this program");
            let mut command = Command::new(program);
            command.args([
                "--exact",
                "--nocapture",
                "pool_accounts::tests::every_identity_gets_one_account_and_no_account_two_identities",
            ]);
            command.env(CHILD, site.path());
            command.stdout(std::process::Stdio::piped()).spawn().expect("started")
        })
        .collect();
    let mut leases: HashMap<String, String> = HashMap::new();
    let mut note = |identity: String, account: String| {
        let known = leases.entry(identity).or_insert_with(|| account.clone());
        assert_eq!(*known, account);
    };
    for (identity, leased) in lease_all(site.path(), &identities) {
        note(identity, leased.expect("as many accounts as identities"));
    }
    for child in children {
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let lines = text.lines().filter_map(|line| line.split_once("LEASED "));
        for (identity, account) in lines.filter_map(|(_, line)| line.split_once('\t')) {
            note(identity.to_owned(), account.to_owned());
        }
    }
    assert_eq!(leases.len(), IDENTITIES);
    let mut accounts: Vec<_> = leases.into_values().collect();
    accounts.sort();
    assert_eq!(accounts, names, "each account has one identity");
}

proptest! {
    #[test]
    fn a_lease_never_leads_out_of_the_directory(identity in ".{0,60}") {
        let name = lease_name(&identity);
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'%';
        prop_assert!(name.bytes().all(fits));
    }
}
