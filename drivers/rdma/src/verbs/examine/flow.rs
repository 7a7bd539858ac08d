//! How Ethernet avoids losses under RoCE: senders that slow down for marks (ECN, with DCQCN), and switches that pause senders (PFC).

use std::path::Path;

use super::super::sysfs;
use super::{Adapter, Line};

/// The priorities of Ethernet (IEEE 802.1Q).
const PRIORITIES: u8 = 8;

impl Adapter<'_> {
    /// Two lines for each network interface of RoCE.
    pub(super) fn flow(&self) -> Vec<Line> {
        let interfaces = match self.is_roce() && self.hardware().exists() {
            true => &self.interfaces[..],
            false => &[],
        };
        let lines = interfaces.iter().flat_map(|name| {
            let congestion = congestion(&self.interface(name).join("ecn"), name);
            [congestion, self.pauses(name)]
        });
        lines.collect()
    }

    fn pauses(&self, name: &str) -> Line {
        const TOPIC: &str = "pauses";

        match (self.machine.paused)(name) {
            Ok(Some(priorities)) if priorities.is_empty() => Line::good(
                TOPIC,
                format!(
                    "{name} has PFC off: packets may be lost where switches are full; right for a circuit or a long path, where rate or \
                     rate=auto avoids losses; within a data center: dcb pfc set dev {name} prio-pfc 3:on, and the same on the switches"
                ),
            ),
            Ok(Some(priorities)) => Line::good(
                TOPIC,
                format!(
                    "{name} has PFC on for {}: give transfers one of these with the option tc of rdma",
                    listed(&priorities)
                ),
            ),
            Ok(None) => Line::unknown(
                TOPIC,
                format!("the driver of {name} does not tell whether PFC is on: ethtool -a {name}"),
            ),
            Err(error) => Line::unknown(
                TOPIC,
                format!(
                    "the kernel does not tell whether PFC is on ({error}): dcb pfc show dev {name}"
                ),
            ),
        }
    }
}

/// The files of mlx5 in MLNX_OFED: a flag for each priority, for the end that notifies (`roce_np`) and the one that reacts (`roce_rp`).
fn congestion(directory: &Path, name: &str) -> Line {
    const TOPIC: &str = "congestion";

    let both = ["roce_np", "roce_rp"].map(|end| enabled(&directory.join(end).join("enable")));
    let [Some(notifies), Some(reacts)] = both else {
        return Line::unknown(
            TOPIC,
            format!(
                "the driver of {name} does not show in sysfs whether ECN is on; the manual of the adapter tells how to ask it (mlx5: \
                 mlxreg, or cc_params in debugfs)"
            ),
        );
    };
    if notifies.is_empty() || reacts.is_empty() {
        return Line::bad(
            TOPIC,
            format!(
                "{name} notifies of marks (ECN) for {}, and slows down for {}: with other traffic on the path, turn both on for the \
                 priority of transfers (echo 1 > /sys/class/net/{name}/ecn/roce_np/enable/3, and the same in roce_rp)",
                listed(&notifies),
                listed(&reacts)
            ),
        );
    }
    Line::good(
        TOPIC,
        format!(
            "{name} notifies of marks (ECN) for {}, and slows down for {}",
            listed(&notifies),
            listed(&reacts)
        ),
    )
}

/// The priorities with a flag that is set; `None` without such files.
fn enabled(directory: &Path) -> Option<Vec<u8>> {
    let flags: Option<Vec<_>> = (0..PRIORITIES)
        .map(|priority| {
            let flag = sysfs::number(&directory.join(priority.to_string()))?;
            Some((priority, flag != 0))
        })
        .collect();
    let enabled = flags?.into_iter().filter(|(_, is_on)| *is_on);
    Some(enabled.map(|(priority, _)| priority).collect())
}

fn listed(priorities: &[u8]) -> String {
    let all: Vec<_> = priorities.iter().map(u8::to_string).collect();
    match &all[..] {
        [] => "no priority".to_owned(),
        [one] => format!("priority {one}"),
        several => format!("priorities {}", several.join(", ")),
    }
}
