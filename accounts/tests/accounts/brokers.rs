//! The start, the end and the number of brokers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gridhaul_accounts::{AccountError, Accounts, BrokerLimits, BrokerSource};
use gridhaul_storage::{Entries, Storage as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

use crate::machine::{ALICE, BOB, CAROL, TestAccount};
use crate::{
    ACCOUNTS, BROKERS, BROKERS_DESCRIPTORS, Served, TIME_LIMIT, accounts, accounts_within, content,
    directory_of, errno, monitored, names, own, path, request, status, wait_for_few_descriptors,
    write,
};

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.try_into().unwrap()).unwrap()
}

/// Waits until a process has ended.
fn wait_for_end(process: u32) {
    let time_limit = Timespec::try_from(TIME_LIMIT).unwrap();
    match pidfd_open(pid(process), PidfdFlags::empty()) {
        Ok(process) => {
            let mut polled = [PollFd::new(&process, PollFlags::IN)];
            assert_eq!(poll(&mut polled, Some(&time_limit)), Ok(1), "it runs still");
        }
        Err(errno) => assert_eq!(errno, Errno::SRCH),
    }
}

fn kill(process: u32) {
    kill_process(pid(process), Signal::KILL).unwrap();
    wait_for_end(process);
}

#[test]
fn calls_of_a_broker_that_hangs_fail_in_time_and_then_at_once() {
    const CALL: Duration = Duration::from_secs(1);

    let accounts = accounts_within(BrokerLimits {
        brokers: 2,
        idle: Duration::from_secs(600),
        call: CALL,
        fresh: BrokerLimits::FRESH,
    });
    let served = Served::by(&accounts, ALICE);
    let storage = &served.storage;
    write(storage, path("f"), b"content").unwrap();
    let broker = storage.broker().unwrap();
    // A stopped broker simulates one whose file system hangs.
    kill_process(pid(broker), Signal::STOP).unwrap();
    let goes_on = OnDrop(|| kill_process(pid(broker), Signal::CONT).unwrap());
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{broker}/stat")).unwrap();
        stat.contains(") T ")
    };
    while !is_stopped() {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    assert_eq!(errno(storage.stat(path("f"))), Some(Errno::TIMEDOUT));
    assert!(begun.elapsed() < TIME_LIMIT);
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(errno(storage.stat(path("f"))), Some(Errno::TIMEDOUT));
    }
    assert!(begun.elapsed() < CALL, "each of them waited");
    drop(goes_on);
    // Its late answer shows that it works again.
    let begun = Instant::now();
    while storage.stat(path("f")).is_err() {
        assert!(begun.elapsed() < TIME_LIMIT);
        std::thread::yield_now();
    }
    assert_eq!(storage.broker(), Some(broker));
}

#[test]
fn a_root_that_was_replaced_is_opened_by_the_next_login() {
    let place = directory_of(ALICE.uid, ALICE.uid, 0o700);
    let root = place.path().join("root");
    let make = || {
        fs::create_dir(&root).unwrap();
        own(&root, ALICE.uid, ALICE.uid, 0o700);
    };
    make();
    let open = || ACCOUNTS.open(&request(ALICE.name, &root));
    let old = open().unwrap();
    write(&old, path("old file"), b"x").unwrap();
    // While the root is unchanged, all logins share a process.
    assert_eq!(open().unwrap().broker(), old.broker());
    fs::rename(&root, place.path().join("old")).unwrap();
    // Refused, rather than served from a directory that no longer has a path.
    let refused = open().unwrap_err();
    assert!(matches!(refused, AccountError::Refused(_)), "{refused}");
    make();
    let new = open().unwrap();
    write(&new, path("new file"), b"x").unwrap();
    assert_eq!(names(&new, path("/")).unwrap(), ["new file"]);
    // Existing sessions use the new directory as well.
    assert_eq!(names(&old, path("/")).unwrap(), ["new file"]);
}

/// Limits under which every login starts a broker.
fn never_fresh(brokers: usize) -> BrokerLimits {
    BrokerLimits {
        brokers,
        idle: Duration::from_secs(600),
        call: BrokerLimits::CALL,
        fresh: Duration::ZERO,
    }
}

/// A directory of an account whose listing takes several messages.
fn long_directory(account: TestAccount) -> TempDir {
    let directory = directory_of(account.uid, account.uid, 0o700);
    for number in 0..1000 {
        fs::write(directory.path().join(format!("file{number}")), "").unwrap();
    }
    directory
}

#[test]
fn an_account_that_never_ends_its_listings_leaves_brokers_to_others() {
    const BROKERS: usize = 8;
    let accounts = accounts_within(never_fresh(BROKERS));
    let directory = long_directory(ALICE);
    let alice = request(ALICE.name, directory.path());
    let mut held = Vec::new();
    let mut brokers = BTreeSet::new();
    for _ in 0..2 * BROKERS {
        let storage = accounts.open(&alice).expect("its own broker serves it");
        let listing = storage.list(path("/")).unwrap();
        brokers.insert(storage.broker().unwrap());
        held.push((storage, listing));
    }
    // One serves, and two finish their listings.
    assert_eq!((brokers.len(), accounts.running()), (3, 3));
    Served::by(&accounts, BOB).storage.stat(path("/")).unwrap();
    // After a reload a login needs a new broker, which looks the account up.
    accounts.renew();
    let refused = accounts.open(&alice).unwrap_err();
    assert!(matches!(refused, AccountError::Finishing(3)), "{refused}");
    assert!(refused.to_string().contains("try again"), "{refused}");
    drop(held);
    let fresh = accounts.open(&alice).unwrap().broker().unwrap();
    assert!(!brokers.contains(&fresh));
}

#[test]
fn an_account_with_many_roots_leaves_brokers_to_others() {
    let accounts = accounts_within(never_fresh(4));
    let held: Vec<_> = (0..3)
        .map(|_| {
            let directory = long_directory(ALICE);
            let opened = accounts.open(&request(ALICE.name, directory.path()));
            let storage = opened.unwrap();
            (storage.list(path("/")).unwrap(), storage, directory)
        })
        .collect();
    let refused = accounts.open(&request(ALICE.name, "/")).unwrap_err();
    assert!(matches!(refused, AccountError::AccountBusy(3)), "{refused}");
    Served::by(&accounts, BOB).storage.stat(path("/")).unwrap();
    drop(held);
    accounts.open(&request(ALICE.name, "/")).unwrap();
}

#[test]
fn sessions_move_to_the_broker_of_the_newest_login() {
    let accounts = accounts_within(never_fresh(8));
    let directory = long_directory(ALICE);
    let open = || {
        accounts
            .open(&request(ALICE.name, directory.path()))
            .unwrap()
    };
    let old = open();
    let first = old.broker().unwrap();
    let mut listing = old.list(path("/")).unwrap();
    let mut entries = listing.next_run(1).unwrap().unwrap().count();
    let new = open();
    assert_ne!(new.broker(), Some(first));
    old.make_directory(path("made")).unwrap();
    assert_eq!(old.broker(), new.broker());
    // The listing continues on its broker, which then ends.
    while let Some(run) = listing.next_run(1).unwrap() {
        entries += run.count();
    }
    assert!((1000..=1001).contains(&entries), "{entries}");
    wait_for_end(first);
    assert_eq!(accounts.running(), 1);
}

#[test]
fn calls_go_on_while_logins_replace_brokers() {
    let accounts = accounts_within(never_fresh(8));
    let served = Served::by(&accounts, CAROL);
    write(&served.storage, path("f"), b"content").unwrap();
    let again = request(CAROL.name, served.directory.path());
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|number| {
                let (storage, stopped) = (&served.storage, &stopped);
                scope.spawn(move || {
                    let name = format!("d{number}");
                    while !stopped.load(Ordering::Relaxed) {
                        // No call is made twice, and none fails.
                        storage.make_directory(path(&name)).unwrap();
                        assert!(names(storage, path("/")).unwrap().contains(&name));
                        storage.remove_directory(path(&name)).unwrap();
                    }
                })
            })
            .collect();
        let _stop = OnDrop(|| stopped.store(true, Ordering::Relaxed));
        for _ in 0..30 {
            // On a busy machine calls keep the brokers before, and the account has no room for another one until they end.
            let storage = loop {
                match accounts.open(&again) {
                    Ok(storage) => break storage,
                    Err(AccountError::AccountBusy(_)) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            assert_eq!(storage.stat(path("f")).unwrap().size, 7);
            assert!(callers.iter().all(|caller| !caller.is_finished()));
        }
    });
    assert!(accounts.running() <= 3);
}

#[test]
fn a_broker_that_died_comes_back_with_the_next_call() {
    let accounts = accounts(4, Duration::from_secs(600));
    let served = Served::by(&accounts, ALICE);
    let storage = &served.storage;
    write(storage, path("f"), b"content").unwrap();
    let mut last = storage.broker().unwrap();
    let calls: [&dyn Fn(); 4] = [
        &|| drop(storage.stat(path("f")).unwrap()),
        &|| drop(storage.open_read(path("f")).unwrap()),
        &|| storage.make_directory(path("d")).unwrap(),
        &|| assert_eq!(names(storage, path("/")).unwrap().len(), 2),
    ];
    for call in calls {
        kill(last);
        call();
        let now = storage.broker().unwrap();
        assert_ne!(last, now);
        last = now;
    }
    let counts = accounts.counts();
    assert_eq!((counts.started, counts.not_started, counts.died), (5, 0, 4));
}

#[test]
fn read_calls_survive_the_death_of_brokers() {
    let served = Served::new(BOB);
    let storage = &served.storage;
    write(storage, path("f"), b"content").unwrap();
    let stopped = AtomicBool::new(false);
    let done: [AtomicUsize; 8] = Default::default();
    std::thread::scope(|scope| {
        for (number, done) in done.iter().enumerate() {
            let stopped = &stopped;
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    match number % 4 {
                        0 => assert_eq!(storage.stat(path("f")).unwrap().size, 7),
                        1 => {
                            assert_eq!(content(&storage.open_read(path("f")).unwrap()), b"content")
                        }
                        2 => assert!(names(storage, path("/")).unwrap().contains(&"f".to_owned())),
                        // The broker that died may have carried it out, and it fails the second time.
                        _ => {
                            let name = format!("d{number}");
                            let made = errno(storage.make_directory(path(&name)));
                            assert!(matches!(made, None | Some(Errno::IO | Errno::EXIST)));
                            let removed = errno(storage.remove_directory(path(&name)));
                            assert!(matches!(removed, None | Some(Errno::IO | Errno::NOENT)));
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The threads end also if this one fails.
        let _stop = OnDrop(|| stopped.store(true, Ordering::Relaxed));
        // Each process is killed after every thread has had answers from it, during any of their calls: a call survives one
        // death, but not two.
        for _ in 0..20 {
            let before = done.each_ref().map(|done| done.load(Ordering::Relaxed));
            let begun = Instant::now();
            let behind =
                |(done, before): (&AtomicUsize, &usize)| done.load(Ordering::Relaxed) < before + 3;
            while done.iter().zip(&before).any(behind) {
                assert!(begun.elapsed() < TIME_LIMIT, "the threads make no progress");
                std::thread::yield_now();
            }
            kill(storage.broker().unwrap());
        }
    });
}

#[test]
fn a_listing_ends_with_its_broker_in_an_error() {
    let served = Served::new(CAROL);
    let storage = &served.storage;
    for number in 0..1000 {
        fs::write(served.real(&format!("file{number}")), "").unwrap();
    }
    let mut stream = storage.list(path("/")).unwrap();
    let mut entries = stream.next_run(1).unwrap().unwrap().count();
    kill(storage.broker().unwrap());
    let error = loop {
        match stream.next_run(1) {
            Ok(Some(run)) => entries += run.count(),
            Ok(None) => panic!("{entries} entries were taken for all"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.call, error.errno), ("scandir", Errno::IO));
    drop(stream);
    assert_eq!(names(storage, path("/")).unwrap().len(), 1000);
}

#[test]
fn an_idle_broker_ends_and_comes_back() {
    let accounts = accounts(8, Duration::from_millis(20));
    let served = Served::by(&accounts, ALICE);
    for _ in 0..3 {
        served.storage.stat(path("/")).unwrap();
        // The broker may have ended again.
        if let Some(broker) = served.storage.broker() {
            wait_for_end(broker);
        }
    }
    // A broker with a listing in progress is not idle.
    for number in 0..1000 {
        fs::write(served.real(&format!("file{number}")), "").unwrap();
    }
    let mut stream = served.storage.list(path("/")).unwrap();
    let other = Served::by(&accounts, BOB);
    if let Some(broker) = other.storage.broker() {
        wait_for_end(broker);
    }
    let mut entries = 0;
    while let Some(run) = stream.next_run(100).unwrap() {
        entries += run.count();
    }
    assert_eq!(entries, 1000);
}

#[test]
fn the_number_of_brokers_is_limited() {
    let accounts = accounts(2, Duration::from_secs(600));
    let alice = Served::by(&accounts, ALICE);
    let bob = Served::by(&accounts, BOB);
    bob.storage.stat(path("/")).unwrap();
    alice.storage.stat(path("/")).unwrap();
    let ended = bob.storage.broker().unwrap();
    let carol = Served::by(&accounts, CAROL);
    // The broker that was idle for longest has ended. Its restart ends the next one.
    wait_for_end(ended);
    assert_eq!(bob.storage.broker(), None);
    let ended = alice.storage.broker().unwrap();
    bob.storage.stat(path("/")).unwrap();
    wait_for_end(ended);

    // Busy brokers are not ended.
    let streams = [&bob, &carol].map(|served| {
        for number in 0..1000 {
            fs::write(served.real(&format!("file{number}")), "").unwrap();
        }
        served.storage.list(path("/")).unwrap()
    });
    assert_eq!(errno(alice.storage.stat(path("/"))), Some(Errno::AGAIN));
    let fresh = accounts.open(&request(ALICE.name, "/")).unwrap_err();
    assert!(matches!(fresh, AccountError::Busy(2)), "{fresh}");
    drop(streams);
    alice.storage.stat(path("/")).unwrap();
}

#[test]
fn a_broker_shares_no_memory_with_the_monitor() {
    let served = Served::new(ALICE);
    served.storage.stat(path("/")).unwrap();
    let broker = served.storage.broker().unwrap();
    let shared = |process: &str| {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        maps.lines()
            .filter(|line| {
                line.split_whitespace()
                    .nth(1)
                    .is_some_and(|rights| rights.ends_with('s'))
            })
            .count()
    };
    assert_eq!(shared(&status(broker, "PPid")), 1, "the limit of leases");
    assert_eq!(shared(&broker.to_string()), 0);
}

#[test]
fn the_monitor_limits_the_brokers_of_an_account_itself() {
    // Requests of a compromised login process, which ignores its own limits.
    let monitor = Arc::new(monitored::take_monitor());
    let alice = request(ALICE.name, "/");
    let mut held = Vec::new();
    let refused = loop {
        match monitor.broker(&alice) {
            Ok(socket) => held.push(socket),
            Err(errno) => break errno,
        }
        assert!(held.len() < 2 * BROKERS, "there is no end");
    };
    assert_eq!(refused, Errno::AGAIN);
    // Half of the total.
    assert_eq!(held.len(), BROKERS / 2);
    let others = Accounts::new(
        Arc::clone(&monitor) as Arc<dyn BrokerSource>,
        BrokerLimits {
            brokers: 2,
            idle: Duration::from_secs(600),
            call: BrokerLimits::CALL,
            fresh: BrokerLimits::FRESH,
        },
    );
    let bob = Served::by(&others, BOB);
    bob.storage.stat(path("/")).unwrap();
    // When they have ended they are reaped, and the account may have others.
    drop(held);
    let broker = bob.storage.broker().unwrap();
    let parent = status(broker, "PPid");
    let begun = Instant::now();
    loop {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        if children.unwrap().trim() == broker.to_string() {
            break;
        }
        assert!(begun.elapsed() < TIME_LIMIT, "they are still there");
        std::thread::yield_now();
    }
    monitor.broker(&alice).unwrap();
}

#[test]
fn all_processes_end_with_the_server() {
    let accounts = accounts(8, Duration::from_secs(600));
    let served = Served::by(&accounts, ALICE);
    let broker = served.storage.broker().unwrap();
    let monitor = status(broker, "PPid").parse().unwrap();
    drop(accounts);
    // Existing sessions continue, but cannot start another broker.
    served.storage.stat(path("/")).unwrap();
    wait_for_end(monitor);
    kill(broker);
    assert_eq!(errno(served.storage.stat(path("/"))), Some(Errno::IO));
    drop(served);

    let again = Served::new(ALICE);
    let broker = again.storage.broker().unwrap();
    let Served { directory, storage } = again;
    drop(storage);
    ACCOUNTS.renew();
    wait_for_end(broker);
    drop(directory);
}

#[test]
fn a_hundred_calls_at_a_time() {
    let served = Served::new(ALICE);
    let storage = &served.storage;
    std::thread::scope(|scope| {
        for number in 0..100 {
            scope.spawn(move || {
                let name = PathBuf::from(format!("file{number}"));
                let own = format!("content of {number}");
                for _ in 0..20 {
                    write(storage, &name, own.as_bytes()).unwrap();
                    let file = storage.open_read(&name).unwrap();
                    assert_eq!(content(&file), own.as_bytes());
                    assert_eq!(storage.stat(&name).unwrap().size, own.len() as u64);
                }
                storage.remove_file(&name).unwrap();
            });
        }
    });
    assert_eq!(names(storage, path("/")).unwrap().len(), 0);
}

#[test]
fn logins_of_one_account_share_a_broker() {
    let directory = directory_of(BOB.uid, BOB.uid, 0o700);
    let request = request(BOB.name, directory.path());
    let brokers: Vec<_> = std::thread::scope(|scope| {
        let logins: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| ACCOUNTS.open(&request).unwrap()))
            .collect();
        logins
            .into_iter()
            .map(|login| login.join().unwrap())
            .collect()
    });
    let first = brokers[0].broker().unwrap();
    assert!(
        brokers
            .iter()
            .all(|storage| storage.broker() == Some(first))
    );
}

#[test]
fn a_listing_of_a_hundred_thousand_entries_does_not_delay_other_calls() {
    const FILES: usize = 100_000;
    let served = Served::new(CAROL);
    let storage = &served.storage;
    let directory = served.real("d");
    fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        fs::write(directory.join(number.to_string()), "").unwrap();
    }
    own(&directory, CAROL.uid, CAROL.uid, 0o700);
    let broker = storage.broker().unwrap();
    let resident = |process: &str| {
        let pages = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
        let resident: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        resident * 4096
    };
    let mut entries = Entries::new(storage.list(path("d")).unwrap(), 256);
    let before = (resident("self"), resident(&broker.to_string()));
    let mut seen = vec![false; FILES];
    while let Some(entry) = entries.next_entry().unwrap() {
        let number: usize = entry.name.to_str().unwrap().parse().unwrap();
        assert!(
            !std::mem::replace(&mut seen[number], true),
            "{number} came twice"
        );
        if number.is_multiple_of(1000) {
            storage.stat(path("d")).unwrap();
        }
    }
    assert!(seen.into_iter().all(|seen| seen));
    assert_eq!(storage.broker(), Some(broker));
    let after = (resident("self"), resident(&broker.to_string()));
    // Names and metadata alone take 10 MB. Other tests run concurrently in this process.
    assert!(
        after.1.saturating_sub(before.1) < 2_000_000,
        "{before:?} {after:?}"
    );
    assert!(
        after.0.saturating_sub(before.0) < 64_000_000,
        "{before:?} {after:?}"
    );
}

#[test]
fn a_removal_is_cancelled_while_it_runs() {
    let served = Served::new(ALICE);
    let storage = &served.storage;
    let tree = served.real("t");
    // Far more entries than are removed before the first poll.
    for directory in 0..200 {
        let directory = tree.join(directory.to_string());
        fs::create_dir_all(&directory).unwrap();
        for file in 0..500 {
            fs::write(directory.join(file.to_string()), "").unwrap();
        }
        own(&directory, ALICE.uid, ALICE.uid, 0o700);
    }
    own(&tree, ALICE.uid, ALICE.uid, 0o700);
    let result = errno(storage.remove_tree(path("t"), &|| true));
    match result {
        Some(Errno::CANCELED) => assert!(tree.exists()),
        // A machine that removes a hundred thousand files in a tenth of a second is finished before the first poll.
        None => assert!(!tree.exists()),
        other => panic!("{other:?}"),
    }
    storage.stat(path("/")).unwrap();
}

#[test]
fn descriptors_are_closed() {
    let served = Served::new(BOB);
    let storage = &served.storage;
    write(storage, path("f"), b"x").unwrap();
    for number in 0..1000 {
        fs::write(served.real(&format!("file{number}")), "").unwrap();
    }
    let broker = storage.broker().unwrap();
    for _ in 0..1000 {
        storage.open_read(path("f")).unwrap();
        storage.list(path("/")).unwrap();
        errno(storage.open_read(path("none"))).unwrap();
    }
    wait_for_few_descriptors(broker, BROKERS_DESCRIPTORS);
    assert_eq!(storage.broker(), Some(broker));
    assert_eq!(errno(storage.list(Path::new("f"))), Some(Errno::NOTDIR));
}
