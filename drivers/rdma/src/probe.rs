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

/// The longest path that one channel fills.
fn rings() -> Finding {
    /// In bytes per second: 10 Gb/s, where no adapter has another rate.
    const RATE: u64 = 1_250_000_000;
    const LONG: Duration = Duration::from_millis(100);

    let limit = Pool::of_process().load().limit_bytes;
    let adapter = verbs::fastest_port();
    let rate = adapter.unwrap_or(RATE);
    let bytes = adapter.map_or(limit, |_| limit.min(pinned_bytes()));
    // Half of the bound is reserved for further channels, and a quarter for accepting ends.
    let ring_bytes = (bytes / 8 * 3).min(ring_length::most_of_client(bytes));
    let round_trip = ring_length::longest_round_trip(rate, ring_bytes);
    Finding {
        about: ABOUT,
        standing: Standing::of(round_trip >= LONG),
        text: format!(
            "rings: all channels together may take {} MiB, and the first one fills {:.0} Gb/s up to a round trip of {} ms",
            limit >> 20,
            rate as f64 * 8e-9,
            round_trip.as_millis()
        ),
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
