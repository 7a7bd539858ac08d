//! The NUMA node of an adapter: memory and threads of its channels belong there.
//!
//! An adapter that moves bytes to the memory of another node uses the connection between the processors,
//! which has less bandwidth. Nothing is done on machines with one node, and for devices without one.
//! Everything here is a preference: where it fails, the channel works as before.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ThreadId};

use gridhaul_iwarp::Span;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::memory::Memory;

/// The nodes of a channel's adapters, which is usually one.
#[derive(Debug)]
pub(crate) struct Locality {
    /// The node of the first adapter that has one comes first.
    nodes: Vec<Occupied>,
    /// Their processors; none, if they have memory only.
    cpus: CpuSet,
}

/// Counts a channel of this process on a node until it is dropped.
#[derive(Debug)]
struct Occupied(usize);

/// The channels of this process by the node of their adapter.
static CHANNELS: [AtomicU32; MAX_NODES] = [const { AtomicU32::new(0) }; MAX_NODES];

impl Occupied {
    fn new(node: usize) -> Self {
        CHANNELS[node].fetch_add(1, Ordering::Relaxed);
        Self(node)
    }

    /// The channels on the node, with this one.
    fn count(&self) -> u32 {
        CHANNELS[self.0].load(Ordering::Relaxed)
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        CHANNELS[self.0].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Nodes with a number in a mask for the kernel, which has room for one more bit (set_mempolicy(2)).
const MAX_NODES: usize = 1023;

impl Locality {
    /// The nodes of these RDMA devices, with `sys` in the place of sysfs. `None` if they have none.
    pub(crate) fn of_devices<'a>(
        sys: &Path,
        devices: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let all = devices.filter_map(|device| Self::of_device(sys, device));
        all.reduce(Self::with)
    }

    fn with(mut self, other: Self) -> Self {
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| other.cpus.is_set(cpu)) {
            self.cpus.set(cpu);
        }
        for node in other.nodes {
            if self.nodes.iter().all(|known| known.0 != node.0) {
                self.nodes.push(node);
            }
        }
        self
    }

    /// The node of an RDMA device, with `sys` in the place of sysfs. `None` if it has none, or if the machine has
    /// one node only.
    fn of_device(sys: &Path, device: &str) -> Option<Self> {
        let text = |path: &Path| fs::read_to_string(path).ok();
        let nodes = sys.join("devices/system/node");
        let online = text(&nodes.join("online"))?;
        if numbers(&online, MAX_NODES)?.len() < 2 {
            return None;
        }
        // -1 means that the firmware names none.
        let hardware = sys.join("class/infiniband").join(device).join("device");
        let node = text(&hardware.join("numa_node"))?;
        let node = node.trim().parse().ok().filter(|&node| node < MAX_NODES)?;
        let cpus = text(&nodes.join(format!("node{node}/cpulist")))?;
        let mut set = CpuSet::new();
        for cpu in numbers(&cpus, CpuSet::MAX_CPU)? {
            set.set(cpu);
        }
        Some(Self {
            nodes: vec![Occupied::new(node)],
            cpus: set,
        })
    }

    /// The numbers of the nodes, such as `1` or `0+1`.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.nodes.iter().map(|node| node.0.to_string()).collect();
        names.join("+")
    }

    /// Moves the calling thread to a processor of the nodes, if it runs on another one. It is not bound to
    /// the node after that, because it will do other work: the scheduler leaves it there unless other
    /// processors have less to do. Returns whether it ran on another one.
    pub(crate) fn move_thread(&self) -> bool {
        let moves = self.draws_from(sched_getcpu());
        if moves {
            self.with_thread_bound(|| ());
        }
        moves
    }

    /// Whether a thread on this processor is moved. Where the node has more channels than processors, they would wait for each other
    /// while other processors are idle.
    fn draws_from(&self, cpu: usize) -> bool {
        let is_there = cpu < CpuSet::MAX_CPU && self.cpus.is_set(cpu);
        let channels = self.nodes.iter().map(Occupied::count).max();
        !is_there && channels.unwrap_or(0) <= self.cpus.count()
    }

    /// Does this on the processors of the node, also in threads that it starts: memory that they touch first is placed there.
    pub(crate) fn with_thread_bound<T>(&self, work: impl FnOnce() -> T) -> T {
        // It fails on machines with more processors than a set holds.
        let Ok(allowed) = sched_getaffinity(None) else {
            return work();
        };
        let wanted = both(&allowed, &self.cpus);
        let is_bound = wanted.count() > 0 && sched_setaffinity(None, &wanted).is_ok();
        let outcome = work();
        if is_bound {
            // The same processors were allowed before. Those that were taken offline since are left out.
            let _ = sched_setaffinity(None, &allowed);
        }
        outcome
    }

    /// Moves memory to the node, and has pages that are added later placed there. The adapters on several nodes move the bytes of one
    /// ring. Its pages take turns with the nodes, so that neither the memory of one, nor one direction of the connection between
    /// them, has all of these bytes.
    pub(crate) fn place(&self, memory: &Memory) {
        let start = memory.pointer_to_read(Span::new(0, memory.length()));
        let mut mask = [0_u64; (MAX_NODES + 1) / 64];
        for node in &self.nodes {
            mask[node.0 / 64] |= 1 << (node.0 % 64);
        }
        let policy = match self.nodes.len() {
            1 => libc::MPOL_PREFERRED,
            _ => libc::MPOL_INTERLEAVE,
        };
        // SAFETY: mbind(2) changes where pages are and not what they contain, and the range is mapped. The
        // mask has as many bits as the call says. Pages that a device has pinned stay where they are.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start.expose_provenance(),
                memory.length(),
                policy,
                mask.as_ptr(),
                MAX_NODES + 1,
                MPOL_MF_MOVE,
            );
        }
    }
}

/// The thread that moves the bytes of a channel. It need not be the one that opened the channel: a worker may do that, and
/// a channel that is kept serves the threads of several transfers.
#[derive(Debug, Default)]
pub(crate) struct Mover(Option<ThreadId>);

impl Mover {
    /// The calling thread uses the channel from now on: it is moved to the adapter's node, once. Returns whether it was moved.
    pub(crate) fn enter(&mut self, locality: &Locality) -> bool {
        let thread = thread::current().id();
        self.0.replace(thread) != Some(thread) && locality.move_thread()
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
pub(crate) fn numbers(list: &str, limit: usize) -> Option<Vec<usize>> {
    let list = list.trim();
    let mut numbers = Vec::new();
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= limit {
            return None;
        }
        numbers.extend(first..=last);
        // Each number may be there once.
        if numbers.len() > limit {
            return None;
        }
    }
    Some(numbers)
}

#[cfg(test)]
pub(crate) mod tests {
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
        write("class/infiniband/mlx5_0/device/numa_node", node);
        let write_of_node = |path: &str, text: &str| {
            write(&format!("devices/system/node/{path}"), text);
        };
        write_of_node("online", &format!("0-{}\n", nodes.len() - 1));
        for (number, cpus) in nodes.iter().enumerate() {
            write_of_node(&format!("node{number}/cpulist"), cpus);
        }
        assert!(Locality::of_device(root.path(), "rxe0").is_none());
        let locality = Locality::of_device(root.path(), "mlx5_0")?;
        Some((locality.nodes[0].0, locality.cpus.count()))
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
            nodes: vec![Occupied::new(node)],
            cpus,
        }
    }

    /// A processor on which no thread of this process runs.
    fn absent_processor() -> usize {
        let allowed = sched_getaffinity(None).unwrap();
        let mut all = 0..CpuSet::MAX_CPU;
        all.find(|&cpu| !allowed.is_set(cpu)).unwrap()
    }

    /// A node of which no processor runs a thread of this process, so that every thread is moved.
    pub(crate) fn elsewhere(node: usize) -> Locality {
        locality(node, absent_processor())
    }

    /// The first node, which every machine has.
    pub(crate) fn first() -> Locality {
        locality(0, 0)
    }

    #[test]
    fn each_thread_that_uses_a_channel_is_moved_once() {
        let elsewhere = elsewhere(903);
        let mut mover = Mover::default();
        assert!(mover.enter(&elsewhere));
        assert!(!mover.enter(&elsewhere), "it was moved");
        thread::scope(|scope| {
            let other = scope.spawn(|| [mover.enter(&elsewhere), mover.enter(&elsewhere)]);
            assert_eq!(other.join().unwrap(), [true, false]);
        });
        assert!(mover.enter(&elsewhere), "it is back");
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
        let elsewhere = elsewhere(0);
        elsewhere.with_thread_bound(|| ());
        assert!(sched_getaffinity(None).unwrap() == before);
    }

    /// As the threads that populate a ring.
    #[test]
    fn threads_that_are_started_meanwhile_are_on_the_node() {
        let before = sched_getaffinity(None).unwrap();
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu));
        let here = locality(1, allowed.next_back().unwrap());
        let affinity = || sched_getaffinity(None).unwrap();
        let inside = here.with_thread_bound(|| thread::spawn(affinity).join().unwrap());
        assert!(inside == here.cpus);
        assert!(affinity() == before);
    }

    #[test]
    fn channels_are_counted_by_node() {
        let count = |locality: &Locality| locality.nodes[0].count();
        let first = locality(900, 0);
        let second = locality(900, 0);
        let other = locality(901, 0);
        assert_eq!([&first, &second, &other].map(count), [2, 2, 1]);
        drop(second);
        assert_eq!(count(&first), 1);
    }

    #[test]
    fn a_thread_is_not_moved_to_a_crowded_node() {
        let first = locality(902, 3);
        assert!(first.draws_from(0));
        assert!(!first.draws_from(3), "it is there");
        let _second = locality(902, 3);
        assert!(!first.draws_from(0), "two channels for one processor");
    }

    /// Adapters on two nodes, of which one has two adapters.
    #[test]
    fn several_adapters_have_the_processors_of_all_their_nodes() {
        let both = locality(905, 3).with(locality(906, 4));
        let both = both.with(locality(905, 3));
        assert_eq!((both.names().as_str(), both.cpus.count()), ("905+906", 2));
        assert!([3, 4].iter().all(|&cpu| !both.draws_from(cpu)) && both.draws_from(5));
        assert_eq!(both.nodes[0].count(), 1, "a channel counts once");
    }

    #[test]
    fn memory_of_several_nodes_takes_turns_with_them() {
        let memory = Memory::new(NonZeroUsize::new(1 << 20).unwrap()).unwrap();
        // Where there is no second one, the kernel leaves it out.
        first().with(locality(1, 0)).place(&memory);
        expect_policy(&memory, "interleave:0");
    }

    #[test]
    fn placed_memory_keeps_its_content() {
        let length = NonZeroUsize::new(1 << 20).unwrap();
        let memory = Memory::new(length).unwrap();
        memory.copy_in(4096, b"content");
        first().place(&memory);
        // There is no such node, which is no failure.
        locality(1000, 0).place(&memory);
        let mut bytes = [0; 7];
        memory.copy_out(4096, &mut bytes);
        assert_eq!(&bytes, b"content");
        expect_policy(&memory, "prefer:0");
    }

    /// The kernel places the pages of this memory by a policy that begins so. A kernel without NUMA does not tell.
    pub(crate) fn expect_policy(memory: &Memory, policy: &str) {
        let Ok(maps) = fs::read_to_string("/proc/self/numa_maps") else {
            return;
        };
        // The mapping may have been joined with the one before.
        let mappings = maps.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((start, words.next()?))
        });
        let mapping = mappings
            .filter(|&(start, _)| start <= memory.address())
            .max();
        let found = mapping.map_or("", |(_, found)| found);
        assert!(found.starts_with(policy), "{found}");
    }
}
