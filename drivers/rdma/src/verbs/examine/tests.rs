//! Machines with adapters as the kernel describes them: sound ones, and such with everything to mend.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// A directory in the place of `/`.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        root.write("sys/devices/system/node/online", "0-1\n");
        root.write("sys/devices/system/cpu/online", "0-15\n");
        let huge = "sys/kernel/mm/transparent_hugepage/enabled";
        root.write(huge, "always [madvise] never\n");
        root.write(
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            "0\n",
        );
        root
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes files beneath a directory, each as name and content.
    fn fill(&self, directory: &str, files: &[(&str, &str)]) {
        for (name, content) in files {
            self.write(&format!("{directory}/{name}"), format!("{content}\n"));
        }
    }

    /// A RoCE adapter at a PCI address, with an interface of this MTU.
    fn adapter(&self, name: &str, address: &str, interface: &str, mtu: &str) {
        let slot = format!("sys/devices/pci0000:80/{address}");
        self.fill(
            &slot,
            &[
                ("numa_node", "1"),
                ("local_cpulist", "8-15"),
                ("current_link_speed", "16.0 GT/s PCIe"),
                ("current_link_width", "16"),
                ("max_link_speed", "16.0 GT/s PCIe"),
                ("max_link_width", "16"),
            ],
        );
        let mut space = vec![0; 256];
        (space[0x34], space[0x60], space[0x68]) = (0x60, 0x10, 0x10);
        self.write(&format!("{slot}/config"), space);
        let device = format!("sys/class/infiniband/{name}");
        self.write(&format!("{device}/node_type"), "1: CA\n");
        symlink(
            self.path().join(&slot),
            self.path().join(&device).join("device"),
        )
        .unwrap();
        let port = format!("{device}/ports/1");
        self.fill(
            &port,
            &[
                ("state", "4: ACTIVE"),
                ("phys_state", "5: LinkUp"),
                ("link_layer", "Ethernet"),
                ("rate", "100 Gb/sec (4X EDR)"),
                ("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001"),
                ("gid_attrs/types/0", "IB/RoCE v1"),
                ("gid_attrs/ndevs/0", interface),
                ("gids/1", "0000:0000:0000:0000:0000:ffff:0a09:0001"),
                ("gid_attrs/types/1", "RoCE v2"),
                ("gid_attrs/ndevs/1", interface),
                ("hw_counters/packet_seq_err", "12"),
                ("hw_counters/local_ack_timeout_err", "0"),
                ("hw_counters/np_cnp_sent", "3"),
                ("counters/symbol_error", "0"),
                ("counters/port_rcv_errors", "0"),
            ],
        );
        self.write(
            &format!("sys/class/net/{interface}/mtu"),
            format!("{mtu}\n"),
        );
    }

    /// Interrupts of an adapter, each with the processors that may handle it.
    fn interrupts(&self, address: &str, handled: &[(u32, &str)]) {
        let mut table = "            CPU0       CPU1\n".to_owned();
        for (number, processors) in handled {
            let irq = format!("sys/devices/pci0000:80/{address}/msi_irqs/{number}");
            self.write(&irq, "msix\n");
            table += &format!("  {number}:   5   7  IR-PCI-MSI  mlx5_comp{number}@pci\n");
            let affinity = format!("proc/irq/{number}/smp_affinity_list");
            self.write(&affinity, format!("{processors}\n"));
        }
        // It is allocated, and has no handler.
        self.write(
            &format!("sys/devices/pci0000:80/{address}/msi_irqs/999"),
            "msix\n",
        );
        self.write(
            "proc/interrupts",
            table + " NMI:  0  0  Non-maskable interrupts\n",
        );
    }

    fn machine(&self) -> Machine {
        Machine {
            sys: self.path().join("sys"),
            proc: self.path().join("proc"),
            paused: |_| Ok(Some(vec![3])),
        }
    }

    /// The report, a line for each finding.
    fn lines(&self) -> Vec<String> {
        lines(&self.machine())
    }
}

fn lines(machine: &Machine) -> Vec<String> {
    let shown = |finding: Finding| {
        let standing = match finding.standing {
            Standing::Good => "good",
            Standing::Bad => "bad",
            Standing::Unknown => "unknown",
        };
        format!("{standing} {}", finding.text)
    };
    machine.examine().into_iter().map(shown).collect()
}

#[track_caller]
fn assert_has(lines: &[String], wanted: &[&str]) {
    for line in wanted {
        assert!(
            lines.iter().any(|one| one.contains(line)),
            "{line}: {lines:#?}"
        );
    }
}

#[test]
fn a_sound_adapter_is_good_throughout() {
    let root = Root::new();
    root.adapter("mlx5_0", "0000:81:00.0", "eth2", "9000");
    root.interrupts("0000:81:00.0", &[(40, "8"), (41, "9-10")]);
    root.fill("sys/class/net/eth2/ecn/roce_np/enable", &flags("1"));
    root.fill("sys/class/net/eth2/ecn/roce_rp/enable", &flags("1"));
    let all = "priorities 0, 1, 2, 3, 4, 5, 6, 7";
    let expected = [
        "good mlx5_0/1: link: Ethernet, LinkUp, 100 Gb/sec (4X EDR), network interface eth2".to_owned(),
        "good mlx5_0/1: mtu: eth2 has 9000 bytes, so packets carry up to 4096 bytes; gridhaul-server doctor --rdma shows what a \
         path leaves of that"
            .to_owned(),
        "good mlx5_0/1: addresses: gid 0 fe80::1 of eth2 (RoCE v1), gid 1 10.9.0.1 of eth2 (RoCE v2)".to_owned(),
        format!("good mlx5_0/1: congestion: eth2 notifies of marks (ECN) for {all}, and slows down for {all}"),
        "good mlx5_0/1: pauses: eth2 has PFC on for priority 3: give transfers one of these with the option tc of rdma".to_owned(),
        "good mlx5_0/1: losses: packets that it sent again are counted, so rate=auto works: packet_seq_err 12, \
         local_ack_timeout_err 0"
            .to_owned(),
        "good mlx5_0/1: marks: marks of congestion are counted; they grow while switches slow transfers down: np_cnp_sent 3"
            .to_owned(),
        "good mlx5_0/1: errors: the link had none".to_owned(),
        "good mlx5_0/1: slot: 16 GT/s with 16 lanes, which carry 227 Gb/s of data each way".to_owned(),
        "good mlx5_0/1: relaxed ordering: the slot allows it, and rings ask for it".to_owned(),
        "good mlx5_0/1: node: NUMA node 1 with processors 8-15; rings and threads of channels go there".to_owned(),
        "good mlx5_0/1: interrupts: 2 of them, on processors 8-10, near the adapter".to_owned(),
        "good machine: huge pages: none are reserved; the kernel makes others for rings (transparent huge pages)".to_owned(),
    ];
    assert_eq!(root.lines(), expected);
}

/// Flags of all priorities.
fn flags(set: &'static str) -> [(&'static str, &'static str); 8] {
    ["0", "1", "2", "3", "4", "5", "6", "7"].map(|priority| (priority, set))
}

#[test]
fn what_slows_an_adapter_down_is_bad_and_has_a_remedy() {
    let root = Root::new();
    root.adapter("mlx5_0", "0000:81:00.0", "eth2", "1500");
    root.interrupts("0000:81:00.0", &[(40, "0"), (41, "1-2"), (42, "9")]);
    root.fill(
        "sys/devices/pci0000:80/0000:81:00.0",
        &[
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "8"),
        ],
    );
    let mut space = vec![0; 256];
    (space[0x34], space[0x60]) = (0x60, 0x10);
    root.write("sys/devices/pci0000:80/0000:81:00.0/config", space);
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    root.fill(port, &[("counters/symbol_error", "7"), ("gids/1", "::")]);
    fs::remove_dir_all(root.path().join(port).join("hw_counters")).unwrap();
    root.fill("sys/class/net/eth2/ecn/roce_np/enable", &flags("0"));
    root.fill("sys/class/net/eth2/ecn/roce_rp/enable", &flags("1"));
    root.write(
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always madvise [never]",
    );
    let lines = root.lines();
    assert_has(
        &lines,
        &[
            "bad mlx5_0/1: mtu: eth2 has 1500 bytes, so packets carry up to 1024 bytes: for 4096 bytes set 4192 or more",
            "bad mlx5_0/1: addresses: gid 0 fe80::1 of eth2 (RoCE v1): none is an address for data connections",
            "bad mlx5_0/1: congestion: eth2 notifies of marks (ECN) for no priority, and slows down for priorities 0",
            "bad mlx5_0/1: losses: its driver does not count",
            "unknown mlx5_0/1: marks: ",
            "bad mlx5_0/1: errors: the link had some since the driver was loaded: symbol_error 7: ",
            "bad mlx5_0/1: slot: 8 GT/s with 8 lanes, which carry 57 Gb/s of data each way, less than the 100 Gb/s of its ports: ",
            "bad mlx5_0/1: relaxed ordering: ",
            "bad mlx5_0/1: interrupts: 3 of them, on processors 0-2, 9: 2 of them only on other NUMA nodes: bind them to 8-15",
            "bad machine: huge pages: none are reserved, and the kernel makes none",
        ],
    );
    // All on one processor, on a machine whose nodes are not known.
    root.interrupts("0000:81:00.0", &[(40, "0"), (41, "0"), (42, "0")]);
    root.write("sys/devices/system/node/online", "0\n");
    assert_has(
        &root.lines(),
        &[
            "bad mlx5_0/1: interrupts: 3 of them, on processors 0: one processor handles all",
            "good mlx5_0/1: node: the machine has one NUMA node",
        ],
    );
    root.fill(port, &[("state", "1: DOWN"), ("phys_state", "3: Disabled")]);
    assert_has(
        &root.lines(),
        &[
            "bad mlx5_0/1: link: Ethernet, Disabled, 100 Gb/sec (4X EDR), network interface eth2: it is DOWN: ",
        ],
    );
}

#[test]
fn two_ports_share_their_slot() {
    let root = Root::new();
    for (name, address, interface) in [
        ("mlx5_0", "0000:81:00.0", "eth2"),
        ("mlx5_1", "0000:81:00.1", "eth3"),
        ("mlx5_2", "0000:c1:00.0", "eth4"),
    ] {
        root.adapter(name, address, interface, "9000");
        root.fill(
            &format!("sys/devices/pci0000:80/{address}"),
            &[("current_link_speed", "8.0 GT/s PCIe")],
        );
    }
    assert_has(
        &root.lines(),
        &[
            "bad mlx5_0/1: slot: 8 GT/s with 16 lanes, which carry 113 Gb/s of data each way, less than the 200 Gb/s of its ports",
            "good mlx5_2/1: slot: 8 GT/s with 16 lanes, which carry 113 Gb/s of data each way; it could have 16 GT/s with 16 lanes",
        ],
    );
}

#[test]
fn what_the_kernel_does_not_tell_is_unknown() {
    let root = Root::new();
    root.adapter("mlx5_0", "0000:81:00.0", "eth2", "9000");
    let slot = "sys/devices/pci0000:80/0000:81:00.0";
    root.fill(
        slot,
        &[("current_link_speed", "Unknown"), ("numa_node", "-1")],
    );
    root.write(&format!("{slot}/config"), [0; 64]);
    fs::remove_file(root.path().join("sys/class/net/eth2/mtu")).unwrap();
    fs::remove_dir_all(
        root.path()
            .join("sys/class/infiniband/mlx5_0/ports/1/counters"),
    )
    .unwrap();
    fs::remove_dir_all(root.path().join("sys/kernel/mm")).unwrap();
    let machine = Machine {
        paused: |_| Err(io::ErrorKind::PermissionDenied.into()),
        ..root.machine()
    };
    assert_has(
        &lines(&machine),
        &[
            "unknown mlx5_0/1: mtu: eth2 does not tell",
            "unknown mlx5_0/1: congestion: the driver of eth2 does not show",
            "unknown mlx5_0/1: pauses: the kernel does not tell whether PFC is on (permission denied)",
            "unknown mlx5_0/1: errors: ",
            "unknown mlx5_0/1: slot: ",
            "unknown mlx5_0/1: relaxed ordering: only root may read",
            "unknown mlx5_0/1: node: ",
            "unknown mlx5_0/1: interrupts: ",
            "unknown machine: huge pages: ",
        ],
    );
}

#[test]
fn strange_files_are_no_harm() {
    let root = Root::new();
    root.adapter("mlx5_0", "0000:81:00.0", "eth2", "9000");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    for (file, content) in [
        ("rate", vec![b'9'; 1 << 20]),
        ("link_layer", b"Ether\x1b[2Jnet\xff\n".to_vec()),
        ("phys_state", Vec::new()),
        ("gid_attrs/ndevs/0", b"../../secret".to_vec()),
        ("gid_attrs/ndevs/1", b"..".to_vec()),
        ("hw_counters/packet_seq_err", b"-1".to_vec()),
        ("hw_counters/np_cnp_sent", vec![b'1'; 4000]),
    ] {
        root.write(&format!("{port}/{file}"), content);
    }
    root.write(
        "sys/devices/pci0000:80/0000:81:00.0/local_cpulist",
        "0-8191,".repeat(9000),
    );
    root.write("sys/devices/pci0000:80/0000:81:00.0/msi_irqs/many", "");
    root.write("proc/interrupts", [0xff; 1000]);
    let lines = root.lines();
    let longest = lines.iter().map(String::len).max();
    assert!(longest < Some(500), "{lines:#?}");
    assert_has(
        &lines,
        &[
            "link: Ether?[2Jnet\u{fffd}, 999",
            "no network interface",
            "losses: packets that it sent again are counted, so rate=auto works: local_ack_timeout_err 0",
            "unknown mlx5_0/1: marks",
        ],
    );
}

#[test]
fn other_protocols_have_other_lines() {
    let root = Root::new();
    root.adapter("mlx5_0", "0000:81:00.0", "ib0", "2044");
    root.adapter("cxgb4_0", "0000:82:00.0", "eth5", "9000");
    root.fill(
        "sys/class/infiniband/mlx5_0/ports/1",
        &[("link_layer", "InfiniBand")],
    );
    root.fill("sys/class/infiniband/cxgb4_0", &[("node_type", "4: RNIC")]);
    // soft-RoCE.
    root.adapter("rxe0", "0000:83:00.0", "eth6", "9000");
    fs::remove_file(root.path().join("sys/class/infiniband/rxe0/device")).unwrap();
    root.fill("sys/class/infiniband/rxe0", &[("parent", "eth6")]);
    let lines = root.lines();
    assert_has(
        &lines,
        &[
            "good mlx5_0/1: addresses: gid 0 fe80::1, gid 1 ::ffff:10.9.0.1",
            "good cxgb4_0/1: losses: TCP repeats lost packets and finds the rate, so rate=auto does not pace",
            "good rxe0/1: hardware: it is made by software",
        ],
    );
    let has = |words: &str| lines.iter().any(|line| line.contains(words));
    assert!(
        !has("mlx5_0/1: mtu") && !has("mlx5_0/1: pauses") && !has("rxe0/1: slot"),
        "{lines:#?}"
    );
}

#[test]
fn a_device_that_disappears_is_not_judged() {
    let root = Root::new();
    root.adapter("mlx5_0", "0000:81:00.0", "eth2", "9000");
    let machine = root.machine();
    let ports = ports(&machine.sys.join("class/infiniband")).unwrap();
    fs::remove_dir_all(root.path().join("sys/class/infiniband/mlx5_0")).unwrap();
    let lines = machine.adapter(&ports[0]).examine(&ports);
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!((line.topic, line.standing), ("device", Standing::Unknown));
}

#[test]
fn without_devices_the_machine_is_not_examined() {
    assert!(Root::new().lines().is_empty());
}
