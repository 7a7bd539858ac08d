//! Adapters as a test describes them, and the process that has them.
//!
//! The driver opens its libraries once for the process, and finds devices in the directory that `SYSFS_PATH` names. So a
//! test runs in a process of its own.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use gridhaul_skip::skipped;

use crate::library;

/// Set in the process that has the adapters.
const INSIDE: &str = "GRIDHAUL_FAKE_ADAPTERS";

/// The prefix of GIDs in a subnet without a name of its own (InfiniBand architecture, volume 1, 4.1.1).
const DEFAULT_PREFIX: &str = "fe80:0000:0000:0000";

/// An adapter, of which one port is in use.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    name: &'static str,
    link: &'static str,
    port: u8,
    lid: u16,
    /// Each with its type.
    gids: Vec<(String, &'static str)>,
    partitions: Vec<u16>,
    /// What sysfs does not show: see `library/fake.h`.
    fake: String,
    /// The processor that handles the interrupt of each completion vector.
    interrupts: &'static [usize],
    /// Its NUMA node, on a machine with two.
    node: Option<usize>,
    /// The P_Key of the interface of IPoIB with the address 127.0.0.1, if it belongs to this adapter.
    interface: Option<u16>,
    is_bonded: bool,
    /// Its driver counts retransmissions.
    counts: bool,
    /// The subnet manager's answer, as `library/rdmacm.c` reads it.
    path: Option<&'static str>,
    /// Of librdmacm, as `library/rdmacm.c` reads it.
    ibacm: Option<&'static str>,
}

impl Adapter {
    /// An adapter of InfiniBand with this LID. Its GUID has the LID as well.
    pub(crate) fn infiniband(name: &'static str, lid: u16) -> Self {
        Self {
            name,
            link: "InfiniBand",
            port: 1,
            lid,
            gids: vec![(
                format!("{DEFAULT_PREFIX}:0002:c903:0000:{lid:04x}"),
                "IB/RoCE v1",
            )],
            partitions: vec![0xffff],
            fake: String::new(),
            interrupts: &[],
            node: None,
            interface: None,
            is_bonded: false,
            counts: false,
            path: None,
            ibacm: None,
        }
    }

    /// An adapter of RoCE whose network interface has the address 127.0.0.`last`.
    pub(crate) fn roce(name: &'static str, last: u8) -> Self {
        let mapped = format!("0000:0000:0000:0000:0000:ffff:7f00:{last:04x}");
        Self {
            name,
            link: "Ethernet",
            port: 1,
            lid: 0,
            gids: vec![(mapped.clone(), "IB/RoCE v1"), (mapped, "RoCE v2")],
            partitions: vec![0xffff],
            fake: String::new(),
            interrupts: &[],
            node: None,
            interface: None,
            is_bonded: false,
            counts: false,
            path: None,
            ibacm: None,
        }
    }

    /// With its cable at the second port.
    pub(crate) fn second_port(self) -> Self {
        Self { port: 2, ..self }
    }

    /// With this table of P_Keys.
    pub(crate) fn partitions(self, table: &[u16]) -> Self {
        Self {
            partitions: table.to_vec(),
            ..self
        }
    }

    /// In a subnet with this prefix, such as `fec0:0000:0000:0001`.
    pub(crate) fn subnet(mut self, prefix: &str) -> Self {
        for (gid, _) in &mut self.gids {
            gid.replace_range(..prefix.len(), prefix);
        }
        self
    }

    /// With an interface of IPoIB that has the address 127.0.0.1.
    pub(crate) fn behind_loopback(self, partition: u16) -> Self {
        Self {
            interface: Some(partition),
            ..self
        }
    }

    /// The interface is a bond, which does not name its partition.
    pub(crate) fn bonded(self) -> Self {
        Self {
            is_bonded: true,
            ..self
        }
    }

    /// With a subnet manager that knows a path: service level, MTU, hop limit and LID, and how many times it answers if it
    /// does not always.
    pub(crate) fn path(self, record: &'static str) -> Self {
        Self {
            path: Some(record),
            ..self
        }
    }

    /// With ibacm, which does not answer any more after so many times, for so many milliseconds.
    pub(crate) fn ibacm(self, answers: &'static str) -> Self {
        Self {
            ibacm: Some(answers),
            ..self
        }
    }

    /// With counters of retransmissions, as those of mlx5.
    pub(crate) fn counting(self) -> Self {
        Self {
            counts: true,
            ..self
        }
    }

    /// On a machine with two NUMA nodes, near the processors 8 to 15, with an interrupt for each completion vector on one of these
    /// processors.
    pub(crate) fn interrupts(mut self, processors: &'static [usize]) -> Self {
        self.interrupts = processors;
        self.with("comp_vectors", processors.len())
    }

    /// On a NUMA node of a machine with two, of which the first has all processors.
    pub(crate) fn on_node(self, node: usize) -> Self {
        Self {
            node: Some(node),
            ..self
        }
    }

    /// With a setting of `library/fake.h`.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.fake.push_str(&format!("{name} {value}\n"));
        self
    }

    /// The directory of the device, as the kernel writes it.
    fn write(&self, sysfs: &Path) {
        let put = |path: &str, text: &str| {
            let path = sysfs.join("class/infiniband").join(self.name).join(path);
            write(&path, text);
        };
        put("node_type", "1: CA");
        for port in 1..self.port {
            put(&format!("ports/{port}/state"), "1: DOWN");
            put(&format!("ports/{port}/link_layer"), self.link);
            put(&format!("ports/{port}/gids/0"), "fe80::1");
        }
        let put = |path: &str, text: &str| put(&format!("ports/{}/{path}", self.port), text);
        put("state", "4: ACTIVE");
        put("link_layer", self.link);
        put("rate", "100 Gb/sec (4X EDR)");
        put("lid", &format!("{:#x}", self.lid));
        for (index, (gid, kind)) in self.gids.iter().enumerate() {
            put(&format!("gids/{index}"), gid);
            put(&format!("gid_attrs/types/{index}"), kind);
        }
        for (index, key) in self.partitions.iter().enumerate() {
            put(&format!("pkeys/{index}"), &format!("{key:#06x}"));
        }
        if self.counts {
            for counter in ["packet_seq_err", "local_ack_timeout_err"] {
                put(&format!("hw_counters/{counter}"), "0");
            }
        }
        if !self.fake.is_empty() {
            let device = sysfs.join("class/infiniband").join(self.name);
            write(&device.join("fake"), self.fake.trim_end());
        }
        self.write_node(sysfs);
        self.write_interrupts(sysfs);
        self.write_interface(sysfs);
        if let Some(path) = self.path {
            write(&sysfs.join("path"), path);
            // The address of the interface is that of both ends.
            write(&sysfs.join("path_from"), &self.gid_file());
            write(&sysfs.join("path_to"), &self.gid_file());
        }
        if let Some(ibacm) = self.ibacm {
            write(&sysfs.join("ibacm"), ibacm);
        }
    }

    fn write_node(&self, sysfs: &Path) {
        let Some(node) = self.node else {
            return;
        };
        let hardware = sysfs
            .join("class/infiniband")
            .join(self.name)
            .join("device");
        write(&hardware.join("numa_node"), &node.to_string());
        let nodes = sysfs.join("devices/system/node");
        for (name, text) in [
            ("online", "0-1"),
            ("node0/cpulist", "0-1023"),
            ("node1/cpulist", ""),
        ] {
            write(&nodes.join(name), text);
        }
    }

    fn write_interrupts(&self, sysfs: &Path) {
        if self.interrupts.is_empty() {
            return;
        }
        write(&sysfs.join("devices/system/node/online"), "0-1");
        let hardware = sysfs
            .join("class/infiniband")
            .join(self.name)
            .join("device");
        write(&hardware.join("local_cpulist"), "8-15");
        let proc = sysfs.parent().expect("a parent").join("proc");
        for (vector, processor) in self.interrupts.iter().enumerate() {
            let number = (40 + vector).to_string();
            write(&hardware.join("msi_irqs").join(&number), "msix");
            let handler = format!("mlx5_comp{vector}@pci:0000:c1:00.0");
            write(
                &sysfs.join("kernel/irq").join(&number).join("actions"),
                &handler,
            );
            let affinity = proc
                .join("irq")
                .join(&number)
                .join("effective_affinity_list");
            write(&affinity, &processor.to_string());
        }
    }

    fn write_interface(&self, sysfs: &Path) {
        let Some(partition) = self.interface else {
            return;
        };
        let put = |name: &str, text: &str| write(&sysfs.join("class/net/lo").join(name), text);
        put("type", "32");
        if !self.is_bonded {
            put("pkey", &format!("{partition:#06x}"));
        }
        put("address", &self.interface_address());
    }

    /// In the process that has the adapters: the interface with the address 127.0.0.1 belongs to this one from now on, and the path
    /// begins here. So the two ends of a channel, which have the same address, are at different adapters.
    pub(crate) fn take_loopback(&self) {
        self.write_interface(&sysfs());
        write(&sysfs().join("path_from"), &self.gid_file());
    }

    /// The file that has its GID.
    fn gid_file(&self) -> String {
        format!("class/infiniband/{}/ports/1/gids/0", self.name)
    }

    /// The hardware address of an interface of IPoIB ends with the GID.
    fn interface_address(&self) -> String {
        let digits = self.gids[0].0.replace(':', "");
        let bytes = digits.as_bytes().chunks(2).map(String::from_utf8_lossy);
        let bytes: Vec<_> = bytes.collect();
        format!("80:00:02:08:{}", bytes.join(":"))
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("created");
    fs::write(path, format!("{text}\n")).expect("written");
}

/// The directory of the adapters of this process.
fn sysfs() -> PathBuf {
    let path = std::env::var_os("SYSFS_PATH");
    path.expect("a process with adapters").into()
}

/// What the libraries have recorded about a device in this file.
pub(crate) fn recorded(device: &str, file: &str) -> Vec<u64> {
    let path = sysfs().join("class/infiniband").join(device);
    let text = fs::read_to_string(path.join(file)).unwrap_or_default();
    let lines = text.lines();
    lines.map(|line| line.parse().expect("a number")).collect()
}

/// Lets a device with the setting `keeps_memory` deregister long memory.
pub(crate) fn let_go(device: &str) {
    write(
        &sysfs().join("class/infiniband").join(device).join("let_go"),
        "",
    );
}

/// Runs the present test in a process that has these adapters.
pub(crate) fn with_adapters(adapters: &[Adapter], test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    run(adapters, &["--exact", &name_of_test()]);
}

/// The same on a machine whose loopback interface takes IP packets of so many bytes.
pub(crate) fn with_adapters_and_mtu(adapters: &[Adapter], ip_bytes: u32, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    // A network namespace starts with an interface that is down.
    let script = format!("ip link set lo mtu {ip_bytes} up && exec \"$@\"");
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", &script, "sh"]);
        command
    };
    let possible = namespace().arg("true").output();
    let is_possible = possible.as_ref().is_ok_and(|tried| tried.status.success());
    if !is_possible {
        return skipped(&format!("no network namespace can be made: {possible:?}"));
    }
    run_by(namespace(), adapters, &["--exact", &name_of_test()]);
}

fn name_of_test() -> String {
    let thread = thread::current();
    thread.name().expect("the name of the test").to_owned()
}

/// Runs the tests that these arguments name, ignored ones as well, in a process that has these adapters.
pub(crate) fn run(adapters: &[Adapter], arguments: &[&str]) {
    run_by(Command::new("env"), adapters, arguments);
}

/// The same in a process that is started by this command, to which the program and its arguments are added.
fn run_by(mut starter: Command, adapters: &[Adapter], arguments: &[&str]) {
    let Some(libraries) = library::directory() else {
        return;
    };
    let root = tempfile::tempdir().expect("a directory");
    let sysfs = root.path().join("sys");
    for adapter in adapters {
        adapter.write(&sysfs);
    }
    let program = std::env::current_exe().expect("this program");
    let outcome = starter
        .arg(program)
        .args(arguments)
        // Each channel has twenty descriptors, and the search for leaks counts those of the process.
        .args(["--include-ignored", "--nocapture", "--test-threads=2"])
        .env(INSIDE, "1")
        .env("LD_LIBRARY_PATH", libraries)
        .env("SYSFS_PATH", &sysfs)
        .output()
        .expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, errors) = (text(&outcome.stdout), text(&outcome.stderr));
    assert!(
        outcome.status.success(),
        "{}\n{shown}\n{errors}",
        outcome.status
    );
    // A wrong name would run no test.
    assert!(!shown.contains("running 0 tests"), "{arguments:?}: {shown}");
}
