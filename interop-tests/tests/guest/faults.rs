//! Faults in the middle of a copy.

use std::thread;
use std::time::Duration;

use gridhaul_interop::Finished;
use gridhaul_interop::guest::{Network, inside};

use crate::path;
use crate::sites::{Sites, Start, number};

/// Two seconds at the rate of the stacks below.
const BYTES: u64 = 40_000_003;

const SOFT: [&str; 2] = ["-dcstack", "rdma:provider=soft;rate=160m;qps=3"];
const VERBS: [&str; 2] = ["-dcstack", "rdma:provider=verbs;rate=160m;qps=3"];

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_copy_whose_connections_are_lost_is_completed_by_another() {
    let name = "faults::a_copy_whose_connections_are_lost_is_completed_by_another";
    inside(Network::Ethernet, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &SOFT, Sites::kill_data_connections);
        completed(&sites, &copied, &SOFT);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn soft_survives_two_seconds_without_a_cable() {
    let name = "faults::soft_survives_two_seconds_without_a_cable";
    inside(Network::Ethernet, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &SOFT, without_a_cable);
        sites.is_whole(&copied);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn roce_survives_two_seconds_without_a_cable() {
    let name = "faults::roce_survives_two_seconds_without_a_cable";
    inside(Network::Rxe, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &VERBS, without_a_cable);
        completed(&sites, &copied, &VERBS);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn failed_queue_pairs_are_replaced() {
    let name = "faults::failed_queue_pairs_are_replaced";
    inside(Network::Rxe, name, || {
        for mode in ["put", "get"] {
            let stack = format!("rdma:provider=verbs;rate=80m;qps=3;mode={mode}");
            let sites = Sites::new(BYTES);
            let copied = in_the_middle(&sites, &["-dcstack", &stack], |sites| {
                assert_eq!(sites.kill_queue_pairs("rxe"), 3);
            });
            sites.is_whole(&copied);
            let transfers = sites.transfers_of_source();
            assert_eq!(number(&transfers[0], "restored"), 3, "{transfers:?}");
        }
    });
}

/// The connections of iWARP cannot be replaced: the copy fails, and the client restarts it from the last marker.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_restart_sends_little_more_than_the_missing_data() {
    let name = "faults::a_restart_sends_little_more_than_the_missing_data";
    inside(Network::Siw, name, || {
        // With -dcstack, globus-url-copy queries the size through a local driver of the same name, and uses up its retries on that.
        // The source's failure ends the client's timeout, so a marker must come before it: after five seconds.
        let stack = "rdma:provider=verbs;rate=32m;qps=3;slab=1M".to_owned();
        let start = Start {
            arguments: ["--stack".to_owned(), stack].into(),
            ..Start::default()
        };
        let sites = Sites::started(BYTES, start);
        let options = ["-fast", "-rst", "-rst-interval", "1"];
        let copied = after_bytes(BYTES / 5 * 3, &sites, &options, |sites| {
            assert_eq!(sites.kill_queue_pairs("siw"), 3);
        });
        sites.is_whole(&copied);
        let transfers = sites.transfers_of_source();
        let sent: Vec<u64> = transfers.iter().map(|line| number(line, "bytes")).collect();
        assert_eq!(sent.len(), 2, "{transfers:?}");
        // The data before the marker, 20 MB on a fast machine, is not sent again.
        assert!(sent[1] < BYTES - BYTES / 5, "{sent:?}");
    });
}

fn without_a_cable(_: &Sites) {
    path::unplug();
    thread::sleep(Duration::from_secs(2));
    path::plug();
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_killed_peer_fails_only_the_current_copy() {
    let name = "faults::a_killed_peer_fails_only_the_current_copy";
    inside(Network::Rxe, name, || {
        for options in [SOFT, VERBS] {
            let mut sites = Sites::new(BYTES);
            let copied = in_the_middle(&sites, &options, Sites::kill_destination);
            assert!(!copied.status.success(), "{copied}");
            sites.restart_destination();
            sites.copy_whole(&options);
        }
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_removed_device_is_reported() {
    let name = "faults::a_removed_device_is_reported";
    inside(Network::Rxe, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &VERBS, |_| {
            path::run("rdma", "link delete rxe_right");
        });
        // Soft-RoCE continues for processes that have it open.
        sites.is_whole(&copied);
        let again = sites.copy(&VERBS);
        assert!(again.output().contains("no RDMA device"), "{again}");
        path::run("rdma", "link add rxe_right type rxe netdev right");
        sites.copy_whole(&VERBS);
    });
}

/// The kernel removes a device in software when no program has it open, which librdmacm has until its process ends
/// (ib_uverbs_remove_one). Until then channels over the device go on, and new ones do without.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn the_end_whose_iwarp_device_is_being_removed_does_without() {
    let name = "faults::the_end_whose_iwarp_device_is_being_removed_does_without";
    inside(Network::Siw, name, || {
        let options = ["-dcstack", "rdma:rate=160m;qps=3"];
        let sites = Sites::new(BYTES);
        let mut removal = None;
        let copied = in_the_middle(&sites, &options, |_| {
            removal = Some(thread::spawn(|| path::run("rdma", "link delete siw_right")));
            path::wait_for("one device file", || path::device_files() == 1);
        });
        sites.is_whole(&copied);
        sites.copy_whole(&options);
        let [source, destination] = sites.transfers();
        let [here, there] = [source.last().unwrap(), destination.last().unwrap()];
        assert!(here.contains("device=siw_left"), "{here}");
        assert!(there.contains("provider=soft"), "{there}");
        drop(sites);
        removal.unwrap().join().unwrap();
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn too_little_memory_to_pin_is_reported() {
    let name = "faults::too_little_memory_to_pin_is_reported";
    inside(Network::Rxe, name, || {
        let wrapper = ["prlimit", "--memlock=65536:65536"]
            .map(str::to_owned)
            .into();
        let sites = Sites::started(
            BYTES,
            Start {
                wrapper,
                ..Start::default()
            },
        );
        let copied = sites.copy(&VERBS);
        assert!(!copied.status.success(), "{copied}");
        assert!(copied.output().contains("ulimit -l"), "{copied}");
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn without_memory_to_pin_files_are_read() {
    let name = "faults::without_memory_to_pin_files_are_read";
    inside(Network::Rxe, name, || {
        // Sections of 256 KiB, with at most 2 MiB pinned.
        let stack = "rdma:provider=verbs;rate=160m;qps=3;slab=1M;register=dynamic";
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &["-dcstack", stack], Sites::limit_memory_to_pin);
        sites.is_whole(&copied);
        let transfers = sites.transfers_of_source();
        let pinned_bytes = number(&transfers[0], "sections-pinned") << 18;
        assert!((1..BYTES / 2).contains(&pinned_bytes), "{transfers:?}");
        let again = sites.copy(&["-dcstack", stack]);
        assert!(again.output().contains("ulimit -l"), "{again}");
    });
}

/// A device receives while its program is stopped, up to the credit. The peer is slow, and not the path.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_slow_receiver_is_no_stall() {
    let name = "faults::a_slow_receiver_is_no_stall";
    inside(Network::Rxe, name, || {
        path::delay(Duration::from_millis(10));
        for mode in ["put", "get"] {
            let stack = format!("rdma:provider=verbs;rate=160m;qps=3;stall=1s;mode={mode}");
            let sites = Sites::new(BYTES);
            let copied = in_the_middle(&sites, &["-dcstack", &stack], |sites| {
                sites.pause_destination(Duration::from_secs(2));
            });
            sites.is_whole(&copied);
            let transfers = sites.transfers_of_source();
            for counted in ["stalls", "restored"] {
                assert_eq!(number(&transfers[0], counted), 0, "{transfers:?}");
            }
        }
    });
}

/// The copy is complete, or it reports the failure and a second copy is complete.
fn completed(sites: &Sites, copied: &Finished, options: &[&str]) {
    if copied.status.success() {
        return sites.is_whole(copied);
    }
    assert!(
        copied.output().contains("the data channel failed"),
        "{copied}"
    );
    sites.copy_whole(options);
}

/// Copies, and injects the fault when a part of the file has arrived.
fn in_the_middle(sites: &Sites, options: &[&str], fault: impl FnOnce(&Sites)) -> Finished {
    after_bytes(BYTES / 5, sites, options, fault)
}

/// The same, when this number of bytes have arrived.
fn after_bytes(
    bytes: u64,
    sites: &Sites,
    options: &[&str],
    fault: impl FnOnce(&Sites),
) -> Finished {
    thread::scope(|scope| {
        let copy = scope.spawn(|| sites.copy(options));
        sites.wait_for(bytes);
        fault(sites);
        copy.join().unwrap()
    })
}
