//! Checks this machine's support for RDMA, for an administrator: the available and the missing parts,
//! and how to fix problems.

use std::time::Duration;

use gridhaul_stack::{Finding, Standing};

use crate::memory::{Pool, pinned_bytes};
use crate::open::ring_length;
use crate::verbs;

const ABOUT: &str = "rdma";

/// Checks every provider and limit. No device stays open.
pub(crate) fn probe() -> Vec<Finding> {
    let mut findings = vec![soft()];
    findings.extend(verbs::inspect());
    findings.extend([rings(), pinning()]);
    findings
}

/// Whether the machine has RDMA devices.
pub(crate) fn has_devices() -> bool {
    verbs::has_devices()
}

fn soft() -> Finding {
    Finding {
        about: ABOUT,
        standing: Standing::Good,
        text: "provider soft: iWARP over TCP by this program, which needs no device".to_owned(),
    }
}

/// The bounds that the rings of this process have.
fn rings() -> Finding {
    let limit = Pool::of_process().load().limit_bytes;
    rings_within(limit, pinned_bytes(), verbs::fastest_port())
}

/// The longest path that one channel fills, where all rings may take `limit` bytes and those of adapters `pinned` bytes, with the
/// rate of the fastest adapter in bytes per second.
fn rings_within(limit: u64, pinned: u64, adapter: Option<u64>) -> Finding {
    /// In bytes per second: 10 Gb/s, where no adapter has another rate.
    const RATE: u64 = 1_250_000_000;
    const LONG: Duration = Duration::from_millis(100);

    let rate = adapter.unwrap_or(RATE);
    let bytes = adapter.map_or(limit, |_| limit.min(pinned));
    let round_trip = ring_length::longest_round_trip_of_client(rate, bytes);
    let mut text = format!(
        "rings: all channels together may take {} MiB, and the ring of the first one grows to fill {:.0} Gb/s up to a round trip of \
         {} ms",
        limit >> 20,
        rate as f64 * 8e-9,
        round_trip.as_millis()
    );
    let is_good = round_trip >= LONG;
    if !is_good {
        let needed = ring_length::limit_for_client(rate, LONG);
        let mebibytes = needed.div_ceil(1 << 20);
        text.push_str(&format!(": for {} ms it takes ", LONG.as_millis()));
        let lacks = [
            (limit < needed).then(|| format!("an rdma-memory of {mebibytes}M")),
            (adapter.is_some() && pinned < needed)
                .then(|| "more pinned memory (LimitMEMLOCK)".to_owned()),
        ];
        let lacks: Vec<_> = lacks.into_iter().flatten().collect();
        text.push_str(&lacks.join(", and "));
    }
    Finding {
        about: ABOUT,
        standing: Standing::of(is_good),
        text,
    }
}

/// Devices need memory that the kernel pins.
fn pinning() -> Finding {
    let limit = pinned_bytes();
    let is_good = limit >= Pool::of_process().load().limit_bytes;
    let words = match limit {
        u64::MAX => "the kernel pins as much memory for devices as is asked for".to_owned(),
        bytes if is_good => format!("the kernel pins {} MiB for devices", bytes >> 20),
        bytes => format!(
            "the kernel pins {} KiB for devices, and rings that are larger together wait for each other or are cut: \
             raise the limit (LimitMEMLOCK=infinity of the service, `ulimit -l unlimited` before)",
            bytes >> 10
        ),
    };
    Finding {
        about: ABOUT,
        standing: Standing::of(is_good),
        text: format!("pinned memory: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Whether it is good, and its text after the rate.
    fn rings_with(limit: u64, pinned: u64, adapter: Option<u64>) -> (bool, String) {
        let finding = rings_within(limit, pinned, adapter);
        let after = finding.text.split_once(" Gb/s ").expect("a rate").1;
        (finding.is_good(), after.to_owned())
    }

    /// A ring begins with 1 GiB at most and grows.
    #[test]
    fn a_fast_port_is_filled_where_the_memory_allows_it() {
        for rate in [6_250_000_000, 12_500_000_000, 50_000_000_000] {
            let enough = rings_with(128 * GIB, u64::MAX, Some(rate));
            assert!(enough.0, "{rate}: {enough:?}");
            let little = rings_with(8 * GIB, u64::MAX, Some(rate));
            assert!(!little.0, "{rate}: {little:?}");
        }
        let slow = rings_with(8 * GIB, 1 << 20, None);
        let expected = "up to a round trip of 200 ms".to_owned();
        assert_eq!(slow, (true, expected), "the kernel pins nothing for soft");
    }

    #[test]
    fn a_warning_about_rings_names_what_helps() {
        let rate = Some(12_500_000_000);
        let (_, words) = rings_with(8 * GIB, u64::MAX, rate);
        let needed = "for 100 ms it takes an rdma-memory of 19074M";
        assert!(words.ends_with(needed), "{words}");
        assert!(rings_with(19_074 << 20, u64::MAX, rate).0);
        let (_, words) = rings_with(8 * GIB, 1 << 20, rate);
        let both = format!("{needed}, and more pinned memory (LimitMEMLOCK)");
        assert!(words.ends_with(&both), "{words}");
        let (_, words) = rings_with(64 * GIB, 1 << 20, rate);
        let pinned = "for 100 ms it takes more pinned memory (LimitMEMLOCK)";
        assert!(words.ends_with(pinned), "{words}");
    }

    #[test]
    fn soft_is_always_there() {
        let findings = probe();
        let soft = findings
            .iter()
            .find(|finding| finding.text.starts_with("provider soft: "));
        assert!(
            soft.is_some_and(|finding| finding.is_good()),
            "{findings:?}"
        );
    }
}
