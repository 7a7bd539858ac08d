//! What the process takes from the machine: processor time, memory, descriptors.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The present values; `None` where the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessFacts {
    /// Of all threads, in user mode and in the kernel, since the start.
    pub(crate) processor_time: Option<Duration>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) started: Option<SystemTime>,
    pub(crate) open_descriptors: Option<u64>,
    /// `None` if there is no limit, too.
    pub(crate) descriptor_limit: Option<u64>,
}

/// The values of this process. The kernel answers from memory.
pub(crate) fn process_facts() -> ProcessFacts {
    /// Read once: the kernel derives it from the clock, and a start that moves would look like a restart.
    static BOOTED: OnceLock<Option<SystemTime>> = OnceLock::new();

    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ProcessFacts {
        open_descriptors: open_descriptors(),
        descriptor_limit: getrlimit(Resource::Nofile).current,
        ..parse(
            &stat,
            clock_ticks_per_second(),
            page_size() as u64,
            *BOOTED.get_or_init(boot),
        )
    }
}

fn boot() -> Option<SystemTime> {
    boot_time(&fs::read_to_string("/proc/stat").ok()?)
}

fn open_descriptors() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    // One of them is that of this listing.
    u64::try_from(entries.count()).ok()?.checked_sub(1)
}

/// The fields of proc_pid_stat(5).
fn parse(stat: &str, ticks: u64, page: u64, boot: Option<SystemTime>) -> ProcessFacts {
    // The name of the program, in parentheses, may contain anything.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    // The first one is the third of the page.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let time = |ticks_of: u64| Duration::from_millis(ticks_of.saturating_mul(1000) / ticks.max(1));
    let both = field(14).zip(field(15));
    ProcessFacts {
        processor_time: both.map(|(user, system)| time(user.saturating_add(system))),
        threads: field(20),
        started: boot.zip(field(22)).map(|(boot, after)| boot + time(after)),
        virtual_bytes: field(23),
        resident_bytes: field(24).map(|pages| pages.saturating_mul(page)),
        ..ProcessFacts::default()
    }
}

/// The line `btime` of proc_stat(5), in seconds since 1970.
fn boot_time(stat: &str) -> Option<SystemTime> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(line.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_shifts_no_field() {
        let stat =
            "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 12 18 1000 4096000 25 26";
        let boot = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let facts = parse(stat, 100, 4096, Some(boot));
        assert_eq!(facts.processor_time, Some(Duration::from_secs(2)));
        assert_eq!(facts.threads, Some(12));
        assert_eq!(facts.started, Some(boot + Duration::from_secs(10)));
        assert_eq!(facts.virtual_bytes, Some(4_096_000));
        assert_eq!(facts.resident_bytes, Some(25 * 4096));
        assert_eq!(parse("", 100, 4096, Some(boot)), ProcessFacts::default());
    }

    #[test]
    fn this_process_has_values() {
        let facts = process_facts();
        assert!(facts.open_descriptors.is_some_and(|open| open >= 3));
        assert!(facts.resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(
            facts
                .started
                .is_some_and(|start| start <= SystemTime::now())
        );
    }
}
