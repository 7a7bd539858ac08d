//! The NUMA node of an adapter: memory and threads of its channels belong there.
//!
//! An adapter that moves bytes to the memory of another node uses the connection between the processors,
//! which has less bandwidth. Nothing is done on machines with one node, and for devices without one.
//! Everything here is a preference: where it fails, the channel works as before.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gridhaul_iwarp::Span;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::clock;
use crate::memory::Memory;

/// The nodes of the machine in sysfs.
const NODES: &str = "/sys/devices/system/node";

/// The node of a channel's adapter.
#[derive(Debug, Clone)]
pub(crate) struct Locality {
    node: usize,
    /// Its processors; none, if it has memory only.
    cpus: CpuSet,
    /// When a thread was last moved.
    moved_at: Option<Duration>,
}

/// Nodes with a number in a mask for the kernel, which has room for one more bit (set_mempolicy(2)).
const MAX_NODES: usize = 1023;

/// A thread that the scheduler moves away is not moved back more often.
const LEAST_STAY: Duration = Duration::from_millis(10);

impl Locality {
    /// The node of a device in the directory `class` of sysfs. `None` if it has none, or if the machine has
    /// one node only.
    pub(crate) fn of_device(class: &Path, device: &str) -> Option<Self> {
        Self::read(class, Path::new(NODES), device)
    }

    fn read(class: &Path, nodes: &Path, device: &str) -> Option<Self> {
        let text = |path: &Path| fs::read_to_string(path).ok();
        let online = text(&nodes.join("online"))?;
        if numbers(&online, MAX_NODES)?.len() < 2 {
            return None;
        }
        // -1 means that the firmware names none.
        let node = text(&class.join(device).join("device/numa_node"))?;
        let node = node.trim().parse().ok().filter(|&node| node < MAX_NODES)?;
        let cpus = text(&nodes.join(format!("node{node}/cpulist")))?;
        let mut set = CpuSet::new();
        for cpu in numbers(&cpus, CpuSet::MAX_CPU)? {
            set.set(cpu);
        }
        Some(Self {
            node,
            cpus: set,
            moved_at: None,
        })
    }

    /// The number of the node.
    pub(crate) fn node(&self) -> u64 {
        self.node as u64
    }

    /// Moves the calling thread to a processor of the node, if it runs on another one. It is not bound to
    /// the node after that, because it will do other work: the scheduler leaves it there unless other
    /// processors have less to do.
    pub(crate) fn move_thread(&mut self) {
        let cpu = sched_getcpu();
        if cpu < CpuSet::MAX_CPU && self.cpus.is_set(cpu) {
            return;
        }
        let now = clock::now();
        if self.moved_at.is_some_and(|at| now < at + LEAST_STAY) {
            return;
        }
        self.moved_at = Some(now);
        // It fails on machines with more processors than a set holds.
        let Ok(allowed) = sched_getaffinity(None) else {
            return;
        };
        let wanted = both(&allowed, &self.cpus);
        if wanted.count() > 0 && sched_setaffinity(None, &wanted).is_ok() {
            // The same processors were allowed before. Those that were taken offline since are left out.
            let _ = sched_setaffinity(None, &allowed);
        }
    }

    /// Moves memory to the node, and has pages that are added later placed there.
    pub(crate) fn place(&self, memory: &Memory) {
        let start = memory.pointer_to_read(Span::new(0, memory.length()));
        let mut mask = [0_u64; (MAX_NODES + 1) / 64];
        mask[self.node / 64] |= 1 << (self.node % 64);
        // SAFETY: mbind(2) changes where pages are and not what they contain, and the range is mapped. The
        // mask has as many bits as the call says. Pages that a device has pinned stay where they are.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start.expose_provenance(),
                memory.length(),
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                MAX_NODES + 1,
                MPOL_MF_MOVE,
            );
        }
    }
}

/// linux/mempolicy.h: moves pages that are elsewhere.
const MPOL_MF_MOVE: libc::c_uint = 2;

/// The processors in both sets.
fn both(one: &CpuSet, other: &CpuSet) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| one.is_set(cpu) && other.is_set(cpu)) {
        set.set(cpu);
    }
    set
}

/// Reads a list of the kernel such as `0-3,8`. `None` if it is none, or if a number is not below `limit`.
fn numbers(list: &str, limit: usize) -> Option<Vec<usize>> {
    let list = list.trim();
    let mut numbers = Vec::new();
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= limit {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Buffer;

    /// A sysfs directory with an adapter on `node`, and these nodes with their processors.
    fn machine(node: &str, nodes: &[&str]) -> Option<(usize, u32)> {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("class/mlx5_0/device/numa_node", node);
        write("node/online", &format!("0-{}\n", nodes.len() - 1));
        for (number, cpus) in nodes.iter().enumerate() {
            write(&format!("node/node{number}/cpulist"), cpus);
        }
        let [class, nodes] = ["class", "node"].map(|name| root.path().join(name));
        assert!(Locality::read(&class, &nodes, "rxe0").is_none());
        let locality = Locality::read(&class, &nodes, "mlx5_0")?;
        Some((locality.node, locality.cpus.count()))
    }

    #[test]
    fn the_node_of_an_adapter_is_read_from_sysfs() {
        assert_eq!(machine("1\n", &["0-3,8-11\n", "4-7,12\n"]), Some((1, 5)));
        assert_eq!(
            machine("1\n", &["0-3\n", "\n"]),
            Some((1, 0)),
            "memory only"
        );
        assert_eq!(machine("0\n", &["0-3\n"]), None, "one node");
        assert_eq!(machine("-1\n", &["0\n", "1\n"]), None, "unknown");
        assert_eq!(machine("7\n", &["0\n", "1\n"]), None, "not there");
        assert_eq!(machine("1\n", &["0\n", "1-99999999999\n"]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_none(text in "[0-9,-]{0,12}|.{0,12}") {
            if let Some(numbers) = numbers(&text, 64) {
                prop_assert!(numbers.iter().all(|&number| number < 64));
            }
        }
    }

    fn locality(node: usize, cpu: usize) -> Locality {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        Locality {
            node,
            cpus,
            moved_at: None,
        }
    }

    #[test]
    fn a_thread_may_run_where_it_could_before() {
        let before = sched_getaffinity(None).unwrap();
        let allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu));
        for cpu in allowed {
            locality(0, cpu).move_thread();
            assert!(sched_getaffinity(None).unwrap() == before);
        }
        // None of these is allowed.
        let absent = (0..CpuSet::MAX_CPU).find(|&cpu| !before.is_set(cpu));
        let mut elsewhere = locality(0, absent.unwrap());
        elsewhere.move_thread();
        assert!(sched_getaffinity(None).unwrap() == before);
        let moved_at = elsewhere.moved_at;
        assert!(moved_at.is_some());
    }

    #[test]
    fn placed_memory_keeps_its_content() {
        let length = NonZeroUsize::new(1 << 20).unwrap();
        let memory = Memory::new(length).unwrap();
        memory.copy_in(4096, b"content");
        locality(0, 0).place(&memory);
        // There is no such node, which is no failure.
        locality(1000, 0).place(&memory);
        let mut bytes = [0; 7];
        memory.copy_out(4096, &mut bytes);
        assert_eq!(&bytes, b"content");
        // A kernel without NUMA has no such list.
        if let Ok(maps) = fs::read_to_string("/proc/self/numa_maps") {
            let address = format!("{:x}", memory.address());
            let line = maps.lines().find(|line| line.starts_with(&address));
            assert!(
                line.is_some_and(|line| line.contains(" prefer:0 ")),
                "{line:?}"
            );
        }
    }
}
