//! The interrupts (completion vectors) of the queues of channels.
//!
//! Channels take turns with the vectors of a device: with one for all, one processor would handle the completions of all. Where the
//! machine has several NUMA nodes, only vectors take part whose interrupts are handled by processors near the device, because the
//! threads of channels are there ([`crate::numa`]), and so is the memory of the queues. Nothing but the names of their handlers
//! tells which interrupt is that of a vector. Where no name is known, all vectors take part.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::sysfs;
use crate::clock;

/// irqbalance moves interrupts every ten seconds at most. To read where they are takes some files for each.
const LASTS: Duration = Duration::from_secs(60);

/// By name.
static DEVICES: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

/// What is known of a device.
#[derive(Debug, Default)]
struct Known {
    /// The vectors near it, when they were last read.
    near: Vec<c_int>,
    read_at: Option<Duration>,
    /// The channels that have got a vector.
    channels: usize,
}

/// The vector for the queues of the next channel over a device, which has so many.
pub(super) fn next_of(device: &str, count: c_int) -> c_int {
    // Every change leaves the state consistent, so a poisoned lock can be used.
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.entry(device.to_owned()).or_default();
    let now = clock::now();
    if known.read_at.is_none_or(|at| now >= at + LASTS) {
        known.near = near(&sysfs::root(), &sysfs::proc(), device);
        known.read_at = Some(now);
    }
    let turn = known.channels;
    known.channels = turn.wrapping_add(1);
    choose(turn, &known.near, count)
}

/// The vector of a channel that has this turn, among the vectors near the device, or among all.
fn choose(turn: usize, near: &[c_int], count: c_int) -> c_int {
    let usable = near.iter().copied().filter(|&vector| vector < count);
    let usable: Vec<_> = usable.collect();
    if usable.is_empty() {
        let count = usize::try_from(count).unwrap_or(0).max(1);
        return c_int::try_from(turn % count).unwrap_or(0);
    }
    usable[turn % usable.len()]
}

/// The vectors, in order, whose interrupts are handled near a device. None if the machine has one node, or where that is not known
/// of any vector.
fn near(sys: &Path, proc: &Path, device: &str) -> Vec<c_int> {
    let nodes = sysfs::list(&sys.join("devices/system/node/online"));
    if nodes.is_none_or(|nodes| nodes.len() < 2) {
        return Vec::new();
    }
    let hardware = sys.join("class/infiniband").join(device).join("device");
    let Some(local) = sysfs::list(&hardware.join("local_cpulist")) else {
        return Vec::new();
    };
    let interrupts = sysfs::names(&hardware.join("msi_irqs"));
    let handlers = interrupts.iter().filter_map(|number| {
        let handler = sysfs::text(&sys.join("kernel/irq").join(number).join("actions"))?;
        Some((number, vector_of(&handler)?))
    });
    let is_near = |number: &str| {
        let interrupt = proc.join("irq").join(number);
        let list = |name: &str| sysfs::list(&interrupt.join(name)).filter(|list| !list.is_empty());
        // Of the processors that may handle it, most controllers use one.
        let handling = list("effective_affinity_list").or_else(|| list("smp_affinity_list"));
        handling.is_some_and(|handling| !handling.is_disjoint(&local))
    };
    let near = handlers.filter(|(number, _)| is_near(number));
    let mut near: Vec<_> = near.map(|(_, vector)| vector).collect();
    near.sort_unstable();
    near.dedup();
    near
}

/// The vector whose interrupt has a handler of this name. Linux: `irq_set_name` in mlx5/core/pci_irq.c, `irdma_cfg_ceq_vector` in
/// irdma/hw.c.
fn vector_of(handler: &str) -> Option<c_int> {
    let mlx5 = handler.strip_prefix("mlx5_comp");
    let mlx5 = mlx5.and_then(|rest| Some(rest.split_once('@')?.0));
    // The first one may be that of events as well: AEQCEQ.
    let irdma = handler.strip_prefix("irdma-");
    let irdma = irdma.and_then(|rest| Some(rest.rsplit_once("CEQ-")?.1));
    let number = mlx5.or(irdma)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory in the place of `/`, with an adapter near the processors 8 to 15.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(nodes: &str) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.write("sys/devices/system/node/online", nodes);
            machine.write("sys/class/infiniband/mlx5_0/device/local_cpulist", "8-15");
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        /// An interrupt of the adapter, with a handler, on these processors.
        fn interrupt(&self, number: u32, handler: &str, effective: &str, allowed: &str) {
            let device = "sys/class/infiniband/mlx5_0/device";
            self.write(&format!("{device}/msi_irqs/{number}"), "msix");
            self.write(&format!("sys/kernel/irq/{number}/actions"), handler);
            for (name, list) in [("effective", effective), ("smp", allowed)] {
                self.write(&format!("proc/irq/{number}/{name}_affinity_list"), list);
            }
        }

        fn near(&self) -> Vec<c_int> {
            let [sys, proc] = ["sys", "proc"].map(|name| self.0.path().join(name));
            near(&sys, &proc, "mlx5_0")
        }
    }

    #[test]
    fn vectors_whose_interrupts_are_on_the_node_are_near() {
        let machine = Machine::new("0-1");
        machine.interrupt(40, "mlx5_async@pci:0000:c1:00.0", "8", "0-15");
        machine.interrupt(41, "mlx5_comp0@pci:0000:c1:00.0", "3", "0-15");
        machine.interrupt(42, "mlx5_comp1@pci:0000:c1:00.0", "9", "0-15");
        machine.interrupt(43, "mlx5_comp2@pci:0000:c1:00.0", "0", "0-7");
        machine.interrupt(44, "mlx5_comp10@pci:0000:c1:00.0", "15", "15");
        // The controller does not tell which one it uses.
        machine.interrupt(45, "mlx5_comp3@pci:0000:c1:00.0", "", "12-15");
        assert_eq!(machine.near(), [1, 3, 10]);
    }

    #[test]
    fn all_vectors_are_used_where_nothing_else_is_known() {
        let machine = Machine::new("0-1");
        assert!(machine.near().is_empty());
        machine.interrupt(40, "mlx4-1@0000:c1:00.0", "8", "8");
        machine.interrupt(41, "mlx5_comp0@pci:0000:c1:00.0", "3", "0-7");
        // An interrupt without a handler, and one that is gone.
        let device = "sys/class/infiniband/mlx5_0/device";
        machine.write("sys/kernel/irq/42/actions", "");
        machine.write(&format!("{device}/msi_irqs/42"), "msix");
        machine.write(&format!("{device}/msi_irqs/43"), "msix");
        assert!(machine.near().is_empty());
        let machine = Machine::new("0");
        machine.interrupt(41, "mlx5_comp0@pci:0000:c1:00.0", "8", "8");
        assert!(machine.near().is_empty(), "one node");
    }

    #[test]
    fn handlers_are_known_by_name() {
        for (handler, vector) in [
            ("mlx5_comp12@pci:0000:c1:00.0", Some(12)),
            ("irdma-0000:c1:00.0-CEQ-7", Some(7)),
            ("irdma-0000:c1:00.0-AEQCEQ-0", Some(0)),
            ("irdma-0000:c1:00.0-AEQ", None),
            ("mlx5_async0@pci:0000:c1:00.0", None),
            ("mlx5_comp-1@pci:0000:c1:00.0", None),
            ("mlx5_comp99999999999@pci:0000:c1:00.0", None),
            ("mlx5_comp", None),
            ("eth0-TxRx-3", None),
        ] {
            assert_eq!(vector_of(handler), vector, "{handler}");
        }
    }

    #[test]
    fn channels_take_turns() {
        let turns = |near: &[c_int], count| [0, 1, 2, 3].map(|turn| choose(turn, near, count));
        assert_eq!(turns(&[], 3), [0, 1, 2, 0]);
        assert_eq!(turns(&[], 1), [0; 4]);
        assert_eq!(turns(&[], 0), [0; 4], "a driver without any");
        assert_eq!(turns(&[], -1), [0; 4]);
        assert_eq!(turns(&[1, 5], 6), [1, 5, 1, 5]);
        assert_eq!(turns(&[1, 5], 5), [1; 4], "the device has fewer");
        assert_eq!(turns(&[5], 2), [0, 1, 0, 1]);
    }
}
