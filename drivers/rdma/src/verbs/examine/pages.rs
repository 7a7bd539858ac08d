//! Huge pages: a ring of them needs fewer translations in an adapter and a processor.

use std::path::Path;

use super::super::sysfs;
use super::Line;

/// What rings get, as `memory::pages` maps them: reserved pages first, then those that the kernel makes on request.
pub(super) fn huge_pages(sys: &Path) -> Line {
    const TOPIC: &str = "huge pages";
    const MIB_OF_A_PAGE: u64 = 2;

    let reserved = sys.join("kernel/mm/hugepages/hugepages-2048kB");
    let count = |name: &str| sysfs::number(&reserved.join(name));
    let transparent = sysfs::text(&sys.join("kernel/mm/transparent_hugepage/enabled"));
    // The kernel puts the setting in brackets: `always [madvise] never`.
    let is_on = transparent.map(|text| !text.contains("[never]"));
    let reserved = match (count("nr_hugepages"), count("free_hugepages")) {
        (Some(all), Some(free)) if all > 0 => {
            format!(
                "{} MiB are reserved, of which {} MiB are free",
                all.saturating_mul(MIB_OF_A_PAGE),
                free.saturating_mul(MIB_OF_A_PAGE)
            )
        }
        _ => "none are reserved".to_owned(),
    };
    match is_on {
        Some(true) => Line::good(
            TOPIC,
            format!("{reserved}; the kernel makes others for rings (transparent huge pages)"),
        ),
        Some(false) if count("free_hugepages").is_some_and(|free| free > 0) => Line::good(
            TOPIC,
            format!("{reserved}; rings beyond that have small pages"),
        ),
        Some(false) => Line::bad(
            TOPIC,
            format!(
                "{reserved}, and the kernel makes none, so rings have small pages: echo madvise > \
                 /sys/kernel/mm/transparent_hugepage/enabled, or reserve some (vm.nr_hugepages)"
            ),
        ),
        None => Line::unknown(
            TOPIC,
            format!("{reserved}, and the kernel does not tell whether it makes others"),
        ),
    }
}
