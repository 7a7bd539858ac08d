//! A server in a container: a network namespace of its own, while the RDMA devices belong to that of the host.

use gridhaul_interop::guest::{Network, inside};

use crate::path;
use crate::sites::{Sites, Start};

/// More than a ring of the stacks below.
const BYTES: u64 = 8_000_003;

/// The host and the container.
const ENDS: [&str; 2] = ["10.9.8.1", "10.9.8.2"];

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_container_does_without_the_devices_of_the_host() {
    let name = "containers::a_container_does_without_the_devices_of_the_host";
    inside(Network::Rxe, name, || {
        container();
        let sites = sites("ip netns exec container", &[]);
        sites.copy_whole(&["-dcstack", "rdma"]);
        for finished in sites.transfers() {
            assert!(finished[0].contains("provider=soft"), "{finished:?}");
        }
        let copied = sites.copy(&["-dcstack", "rdma:provider=verbs"]);
        assert!(!copied.status.success(), "{copied}");
        let words = "no RDMA device has the address 10.9.8.2: none";
        assert!(copied.output().contains(words), "{copied}");
    });
}

/// It has the files of the host in `/sys`, where it finds a device that it may not open.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_device_of_another_namespace_is_named_and_done_without() {
    let name = "containers::a_device_of_another_namespace_is_named_and_done_without";
    inside(Network::Rxe, name, || {
        container();
        let rules = ["--client-options", "rdma:provider;device;gid"];
        let sites = sites("nsenter --net=/run/netns/container", &rules);
        let stack = "rdma:provider=verbs;device=rxe_host;gid=1";
        let copied = sites.copy(&["-dcstack", stack]);
        assert!(!copied.status.success(), "{copied}");
        for words in ["rxe_host", "network namespace", "rdma system"] {
            assert!(copied.output().contains(words), "{words}: {copied}");
        }
        sites.copy_whole(&["-dcstack", "rdma:device=rxe_host;gid=1"]);
        for finished in sites.transfers() {
            let last = finished.last().unwrap();
            assert!(last.contains("provider=soft"), "{last}");
        }
    });
}

/// A namespace, and a cable to it from a device of the host. Devices are in one namespace only, which has to be set before
/// there is another one.
fn container() {
    path::run("rdma", "system set netns exclusive");
    let [host, container] = ENDS;
    for words in [
        "netns add container",
        "link add host mtu 9000 type veth peer name eth0 mtu 9000 netns container",
        &format!("address add {host}/24 dev host"),
        &format!("-n container address add {container}/24 dev eth0"),
        "link set host up",
        "-n container link set eth0 up",
        "-n container link set lo up",
    ] {
        path::run("ip", words);
    }
    path::run("rdma", "link add rxe_host type rxe netdev host");
}

/// A server of the host, and one that this command starts in the container.
fn sites(wrapper: &str, arguments: &[&str]) -> Sites {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let host = Start {
        arguments: words(arguments),
        ..Start::default()
    };
    let wrapper: Vec<&str> = wrapper.split(' ').collect();
    let container = Start {
        wrapper: words(&wrapper),
        arguments: words(arguments),
    };
    Sites::at(ENDS, BYTES, [host, container])
}
