//! What the driver of a port counts: packets that it sent again, marks of congestion, errors of the link.

use std::path::Path;

use super::super::counters::{MISSES, OVERDUE};
use super::super::ports::Protocol;
use super::super::sysfs;
use super::{Adapter, Line};

/// Counters of marked packets (ECN), and of the notices that a receiver sends for them (CNP): of mlx5 (counters.c in mlx5_ib), bnxt_re
/// (hw_counters.c) and irdma (hw.c).
const MARKS: [&str; 11] = [
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_ecn_marked_pkts",
    "tx_cnp_pkts",
    "rx_cnp_pkts",
    "RxECNMrkd",
    "cnpSent",
    "cnpHandled",
    "cnpIgnored",
];

/// Counters of damaged packets (InfiniBand architecture, volume 1, 16.1.3.5).
const ERRORS: [&str; 5] = [
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
];

impl Adapter<'_> {
    pub(super) fn counting(&self) -> Vec<Line> {
        let mut lines = vec![self.losses()];
        if self.is_roce() {
            lines.push(self.marks());
        }
        lines.push(self.errors());
        lines
    }

    /// `rate=auto` tells a late message from a lost one by these counters.
    fn losses(&self) -> Line {
        const TOPIC: &str = "losses";

        if self.port.protocol == Protocol::Iwarp {
            let text = "TCP repeats lost packets and finds the rate, so rate=auto does not pace";
            return Line::good(TOPIC, text);
        }
        let directory = self.path().join("hw_counters");
        let found = counters(&directory, MISSES.iter().chain(&OVERDUE));
        if found.is_empty() {
            return Line::bad(
                TOPIC,
                "its driver does not count packets that it sends again, so rate=auto does not pace: behind a policer set rate by hand",
            );
        }
        Line::good(
            TOPIC,
            format!(
                "packets that it sent again are counted, so rate=auto works: {}",
                shown(&found)
            ),
        )
    }

    /// Whether switches mark packets, and whether the adapters slow down for that.
    fn marks(&self) -> Line {
        const TOPIC: &str = "marks";

        let found = counters(&self.path().join("hw_counters"), MARKS.iter());
        if found.is_empty() {
            return Line::unknown(
                TOPIC,
                "its driver counts no marks of congestion (ECN, CNP): the counters of the switches tell",
            );
        }
        Line::good(
            TOPIC,
            format!(
                "marks of congestion are counted; they grow while switches slow transfers down: {}",
                shown(&found)
            ),
        )
    }

    fn errors(&self) -> Line {
        const TOPIC: &str = "errors";

        let mut found = counters(&self.path().join("counters"), ERRORS.iter());
        if found.is_empty() {
            let text = "its driver counts no errors of the link: ethtool -S, or mlxlink";
            return Line::unknown(TOPIC, text);
        }
        found.retain(|(_, count)| *count > 0);
        if found.is_empty() {
            return Line::good(TOPIC, "the link had none");
        }
        Line::bad(
            TOPIC,
            format!(
                "the link had some since the driver was loaded: {}: if they grow, clean or replace cable and transceiver",
                shown(&found)
            ),
        )
    }
}

/// The counters of a directory that exist, with their values.
fn counters<'a>(
    directory: &Path,
    names: impl Iterator<Item = &'a &'static str>,
) -> Vec<(&'static str, u64)> {
    let read = |name: &&'static str| Some((*name, sysfs::number(&directory.join(name))?));
    names.filter_map(read).collect()
}

fn shown(counters: &[(&str, u64)]) -> String {
    let shown = counters
        .iter()
        .map(|(name, count)| format!("{name} {count}"));
    shown.collect::<Vec<_>>().join(", ")
}
