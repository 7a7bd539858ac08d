//! Networks of sites over which RoCE is routed: small packets in the middle, a firewall.

use gridhaul_interop::guest::{Network, inside};

use crate::path;
use crate::sessions::Sessions;
use crate::sites::{Sites, number};

/// More than a ring of the stacks below.
const BYTES: u64 = 8_000_003;

/// With the smallest ring, because most copies test the path and not the rate.
const VERBS: &str = "rdma:provider=verbs;slab=1M";

/// The two routers.
const ROUTERS: [&str; 2] = ["router_left", "router_right"];

/// TCP sends only short packets before the test of the path, and so does not know of the MTU between the routers, which at first
/// they do not tell either. Then they tell it, while soft-RoCE sends a longer packet again and again.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn packets_fit_into_the_smallest_mtu_of_the_path() {
    let name = "routed::packets_fit_into_the_smallest_mtu_of_the_path";
    inside(Network::Routed, name, || {
        let mut sessions = Sessions::new(BYTES);
        sessions.set_stack(VERBS);
        assert_eq!(mtus(&mut sessions), [4096, 4096]);

        for router in ROUTERS {
            discard(router, "end", "match ip protocol 1 0xff");
            path::run("ip", &format!("-n {router} link set middle mtu 1500"));
        }
        assert_eq!(mtus(&mut sessions), [1024, 1024]);
        let [reply, _] = sessions.details();
        assert_eq!(number(&reply, "restored"), 0, "{reply}");

        sessions.set_stack(&format!("{VERBS};mode=get"));
        assert_eq!(mtus(&mut sessions), [1024, 1024]);
        sessions.set_stack(&format!("{VERBS};mtu=512"));
        assert_eq!(mtus(&mut sessions), [512, 512]);

        // Now the routers tell it.
        for router in ROUTERS {
            path::run("tc", &format!("-n {router} qdisc delete dev end clsact"));
        }
        sessions.set_stack(VERBS);
        assert_eq!(mtus(&mut sessions), [1024, 1024]);
    });
}

/// A router discards packets of this kind that it would send over an interface.
fn discard(router: &str, interface: &str, kind: &str) {
    path::run(
        "tc",
        &format!("-n {router} qdisc add dev {interface} clsact"),
    );
    let filter = format!("-n {router} filter add dev {interface} egress protocol ip");
    path::run("tc", &format!("{filter} u32 {kind} action drop"));
}

/// The MTUs of both ends after a copy.
fn mtus(sessions: &mut Sessions) -> [u64; 2] {
    sessions.copy_whole();
    sessions.details().map(|reply| number(&reply, "mtu-bytes"))
}

/// The certificates of the login are longer than a packet, so that TCP learns of the MTU.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_firewall_against_roce_is_named() {
    let name = "routed::a_firewall_against_roce_is_named";
    inside(Network::Routed, name, || {
        let sites = Sites::new(BYTES);
        // It discards what goes to the right, which is enough: no packet is acknowledged in either direction.
        let roce = "match ip protocol 17 0xff match ip dport 4791 0xffff";
        discard("router_left", "middle", roce);
        let copied = sites.copy(&["-dcstack", VERBS]);
        assert!(!copied.status.success(), "{copied}");
        for words in ["UDP port 4791", "provider=soft", "although TCP does"] {
            assert!(copied.output().contains(words), "{words}: {copied}");
        }
        // By default the two ends do without adapters.
        sites.copy_whole(&["-dcstack", "rdma"]);
        for finished in sites.transfers() {
            let last = finished.last().unwrap();
            assert!(last.contains("provider=soft"), "{last}");
        }

        path::run("tc", "-n router_left qdisc delete dev middle clsact");
        for router in ROUTERS {
            path::run("ip", &format!("-n {router} link set middle mtu 1500"));
        }
        sites.copy_whole(&["-dcstack", VERBS]);
        let transfers = sites.transfers_of_source();
        let last = transfers.last().unwrap();
        assert_eq!(number(last, "mtu-bytes"), 1024, "{last}");
    });
}

/// The addresses on the VLAN.
const ENDS: [&str; 2] = ["10.9.7.1", "10.9.7.2"];

/// The device is that of the interface below, and the GID that of the VLAN.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn roce_uses_the_vlan_of_the_data_connection() {
    let name = "routed::roce_uses_the_vlan_of_the_data_connection";
    inside(Network::Rxe, name, || {
        vlan();
        let mut sessions = Sessions::at(ENDS, BYTES);
        sessions.set_stack(VERBS);
        sessions.copy_whole();
        for (reply, end) in sessions.details().iter().zip(["left", "right"]) {
            let device = format!("device=rxe_{end}/1");
            assert!(reply.contains(&device), "{reply}");
            let index = number(reply, "gid");
            let interface =
                format!("/sys/class/infiniband/rxe_{end}/ports/1/gid_attrs/ndevs/{index}");
            let interface = std::fs::read_to_string(interface).unwrap();
            assert_eq!(interface.trim(), format!("vlan_{end}"), "{reply}");
        }
    });
}

/// An interface with a tag at each end of the cable, and routes between the two as those of the cable.
fn vlan() {
    let [left, right] = ENDS;
    for (end, [own, far], table) in [("left", [left, right], 107), ("right", [right, left], 108)] {
        let interface = format!("vlan_{end}");
        for words in [
            format!("link add link {end} name {interface} type vlan id 7"),
            // A frame is four bytes longer.
            format!("link set {interface} mtu 8996 up"),
            format!("address add {own}/24 dev {interface}"),
            format!("route add {far}/32 dev {interface} src {own} table {table}"),
            format!("rule add pref 1 iif {interface} lookup local"),
            format!("rule add pref 3 iif lo to {far} lookup {table}"),
        ] {
            path::run("ip", &words);
        }
    }
}
