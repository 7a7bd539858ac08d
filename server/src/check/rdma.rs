//! What there is for data channels over the driver `rdma`.

use super::report::Report;
use crate::config::Config;
use crate::memory;

const ABOUT: &str = "rdma";

/// Whether data may go by RDMA at all.
pub(super) fn is_asked_for(config: &Config) -> bool {
    let data = &config.data;
    let is_default = data.stack.split([':', ',']).next() == Some(ABOUT);
    is_default || data.allowed_drivers.iter().any(|driver| driver == ABOUT)
}

pub(super) fn check(report: &mut Report, config: &Config) {
    if is_asked_for(config) {
        report.ok(ABOUT, "clients may have data channels over rdma");
    } else {
        report.warning(
            ABOUT,
            "clients may not have data channels over rdma: name it in allowed-drivers",
        );
    }
    check_memory(report, config);
    gridhaul_rdma::limit_memory(memory::ring_bytes(&config.limits));
    for finding in gridhaul_rdma::probe() {
        let text = format!("{}: {}", finding.about, finding.words);
        if finding.is_good {
            report.ok(ABOUT, text);
        } else {
            report.warning(ABOUT, text);
        }
    }
}

/// Rings and buffers may be full at the same time.
fn check_memory(report: &mut Report, config: &Config) {
    const ABOUT: &str = "rdma-memory";
    let rings = memory::ring_bytes(&config.limits);
    let buffers = memory::buffer_bytes(&config.limits);
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    match memory::limit() {
        Some(limit) if rings.saturating_add(buffers) > limit => report.error(
            ABOUT,
            format!(
                "{} and the {} of buffer-memory are more than the {} that the server may have: lower one of \
                 them",
                mebibytes(rings),
                mebibytes(buffers),
                mebibytes(limit)
            ),
        ),
        _ => report.ok(ABOUT, mebibytes(rings)),
    }
}
