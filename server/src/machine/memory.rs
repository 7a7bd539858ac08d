//! How much memory the process may use.

use std::path::Path;

use crate::config::Limits;

/// The bound on memory for data in transit: `buffer-memory`, or a quarter of the memory of the machine or the control group,
/// at most 1 GiB.
pub(crate) fn buffer_bytes(limits: &Limits) -> u64 {
    const MOST: u64 = 1 << 30;
    limits.buffer_memory.unwrap_or_else(|| quarter().min(MOST))
}

/// The bound on memory for the rings of the driver `rdma`: `rdma-memory`, or a quarter of the memory.
pub(crate) fn ring_bytes(limits: &Limits) -> u64 {
    limits.rdma_memory.unwrap_or_else(quarter)
}

fn quarter() -> u64 {
    const LEAST: u64 = 64 << 20;
    memory_limit().map_or(LEAST, |limit| (limit / 4).max(LEAST))
}

/// The memory that the process may use: that of the machine, or of the control group if that is less.
pub(crate) fn memory_limit() -> Option<u64> {
    [machine(), control_group()].into_iter().flatten().min()
}

fn machine() -> Option<u64> {
    total_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The least limit of the process's group (cgroup v2) and of its ancestors.
fn control_group() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = Path::new("/sys/fs/cgroup");
    mount
        .join(path)
        .ancestors()
        .take_while(|group| group.starts_with(mount))
        .filter_map(|group| std::fs::read_to_string(group.join("memory.max")).ok())
        .filter_map(|limit| limit.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        assert_eq!(
            total_of("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16 << 20)
        );
    }

    #[test]
    fn the_default_is_bounded() {
        assert!((64 << 20..=1 << 30).contains(&quarter().min(1 << 30)));
    }
}
