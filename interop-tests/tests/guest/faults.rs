//! What goes wrong in the middle of a copy.

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
fn two_seconds_without_a_cable_do_no_harm_to_soft() {
    let name = "faults::two_seconds_without_a_cable_do_no_harm_to_soft";
    inside(Network::Ethernet, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &SOFT, without_a_cable);
        sites.is_whole(&copied);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn two_seconds_without_a_cable_are_overcome_by_roce() {
    let name = "faults::two_seconds_without_a_cable_are_overcome_by_roce";
    inside(Network::Rxe, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &VERBS, without_a_cable);
        completed(&sites, &copied, &VERBS);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn queue_pairs_that_die_are_replaced() {
    let name = "faults::queue_pairs_that_die_are_replaced";
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
fn a_restart_sends_what_is_missing_and_little_more() {
    let name = "faults::a_restart_sends_what_is_missing_and_little_more";
    inside(Network::Siw, name, || {
        // With -dcstack, globus-url-copy looks for a driver of its own to ask for the size, and spends its retries on that.
        // The source's failure ends the client's timeout, so there has to be a marker before: after five seconds.
        let stack = "rdma:provider=verbs;rate=32m;qps=3;slab=1M".to_owned();
        let start = Start {
            arguments: ["--stack".to_owned(), stack].into(),
            ..Start::default()
        };
        let sites = Sites::started(BYTES, start);
        let options = ["-fast", "-rst", "-rst-interval", "1"];
        let copied = when_there_are(BYTES / 5 * 3, &sites, &options, |sites| {
            assert_eq!(sites.kill_queue_pairs("siw"), 3);
        });
        sites.is_whole(&copied);
        let transfers = sites.transfers_of_source();
        let sent: Vec<u64> = transfers.iter().map(|line| number(line, "bytes")).collect();
        assert_eq!(sent.len(), 2, "{transfers:?}");
        // What came before the marker, 20 MB if the machine is quick, does not come again.
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
fn a_peer_that_dies_fails_the_copy_and_not_the_next_one() {
    let name = "faults::a_peer_that_dies_fails_the_copy_and_not_the_next_one";
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
fn a_device_that_is_removed_is_named() {
    let name = "faults::a_device_that_is_removed_is_named";
    inside(Network::Rxe, name, || {
        let sites = Sites::new(BYTES);
        let copied = in_the_middle(&sites, &VERBS, |_| {
            path::run("rdma", "link delete rxe_right");
        });
        // Soft-RoCE goes on for those who have it open.
        sites.is_whole(&copied);
        let again = sites.copy(&VERBS);
        assert!(again.output().contains("no RDMA device"), "{again}");
        path::run("rdma", "link add rxe_right type rxe netdev right");
        sites.copy_whole(&VERBS);
    });
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn too_little_memory_to_pin_is_named() {
    let name = "faults::too_little_memory_to_pin_is_named";
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
        // Sections of 256 KiB, of which 2 MiB are pinned at a time.
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

/// A device receives while its program does nothing, as long as there is credit. It is the peer that is slow, and not the path.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_receiver_that_takes_its_time_is_waited_for() {
    let name = "faults::a_receiver_that_takes_its_time_is_waited_for";
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

/// A copy is whole, or says what failed and another one is whole.
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

/// Copies, and does something else when a part of the file has arrived.
fn in_the_middle(sites: &Sites, options: &[&str], fault: impl FnOnce(&Sites)) -> Finished {
    when_there_are(BYTES / 5, sites, options, fault)
}

/// The same, when so many bytes have arrived.
fn when_there_are(
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
