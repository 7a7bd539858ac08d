//! Checks this machine's support for RDMA, for an administrator: the available and the missing parts,
//! and how to fix problems.

use gridhaul_stack::Finding;

use crate::memory::{Pool, pinned_bytes};
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
        is_good: true,
        text: "provider soft: iWARP over TCP by this program, which needs no device".to_owned(),
    }
}

/// One ring for each direction, of three times the bandwidth-delay product.
fn rings() -> Finding {
    /// 10 Gb/s over 100 ms, times three, in both directions.
    const WANTED_BYTES: u64 = 2 * 3 * 125_000_000;

    let limit = Pool::of_process().load().limit_bytes;
    let mebibytes = limit >> 20;
    let words = if limit < WANTED_BYTES {
        format!(
            "all channels together may take {mebibytes} MiB, and one that fills 10 Gb/s over a round trip of \
             100 ms wants {} MiB",
            WANTED_BYTES >> 20
        )
    } else {
        format!("all channels together may take {mebibytes} MiB")
    };
    Finding {
        about: ABOUT,
        is_good: limit >= WANTED_BYTES,
        text: format!("rings: {words}"),
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
        is_good,
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
        assert!(soft.is_some_and(|finding| finding.is_good), "{findings:?}");
    }
}
