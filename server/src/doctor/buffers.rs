//! The kernel's limits for TCP buffers, against what the path needs.

use std::time::Duration;

use super::bottleneck::Limits;
use super::findings::Findings;
use crate::machine::{kernel_setting, largest_window};

const ABOUT: &str = "tcp";

/// More parallel channels than this are unusual.
const MANY_CHANNELS: u64 = 8;

/// Checks the limits for the round-trip time, if it is known. `link` is the speed of the network in bytes per second.
pub(super) fn check(report: &mut Findings, rtt: Option<Duration>, link: Option<u64>) -> Limits {
    let receive = largest_window("net.ipv4.tcp_rmem");
    let send = largest_window("net.ipv4.tcp_wmem");
    let control = kernel_setting("net.ipv4.tcp_congestion_control");
    let control = control.unwrap_or_else(|| "unknown".to_owned());
    report.ok(
        ABOUT,
        format!(
            "a channel may have {} to receive and {} to send; congestion control is {control}",
            mebibytes(receive),
            mebibytes(send)
        ),
    );
    match (rtt, link) {
        (Some(rtt), Some(link)) => {
            for (direction, setting, bytes) in [
                ("receive", "net.ipv4.tcp_rmem", receive),
                ("send", "net.ipv4.tcp_wmem", send),
            ] {
                if let Some(bytes) = bytes {
                    check_window(report, (direction, setting), bytes, rtt, link);
                }
            }
        }
        (None, _) => report.ok(
            ABOUT,
            "give --rtt MILLISECONDS or --peer HOST to compare the buffers with the path",
        ),
        (Some(_), None) => report.warning(
            ABOUT,
            "the speed of the network is unknown here, so the buffers cannot be compared with the path",
            "run gridhaul-server doctor on a host whose interface tells its speed (ethtool), or compute the product of speed and \
             round-trip time yourself",
        ),
    }
    Limits {
        receive_bytes: receive,
        link,
    }
}

fn check_window(
    report: &mut Findings,
    (direction, setting): (&str, &str),
    bytes: u64,
    rtt: Duration,
    link: u64,
) {
    let needed = needed(rtt, link);
    // The kernel counts its own overhead in the buffer: half of it is data (tcp_adv_win_scale, tcp(7)).
    let channels = needed.div_ceil((bytes / 2).max(1)).max(1);
    let text = format!(
        "at {:.1} ms the network holds {}: {channels} channels with the largest buffers fill it ({direction})",
        rtt.as_secs_f64() * 1000.0,
        mebibytes(Some(needed))
    );
    if channels > MANY_CHANNELS {
        let most = needed.saturating_mul(2);
        let remedy = format!("raise the last number of {setting} to {most}");
        report.warning(ABOUT, text, &remedy);
    } else {
        report.ok(ABOUT, text);
    }
}

/// The bytes that are on their way at full speed.
fn needed(rtt: Duration, link: u64) -> u64 {
    let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
    let product = u128::from(link) * u128::from(micros) / 1_000_000;
    u64::try_from(product).unwrap_or(u64::MAX)
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(
        || "an unknown size".to_owned(),
        |bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::report::Verdict;

    #[test]
    fn small_buffers_on_a_long_path_are_a_warning() {
        const TEN_GIGABITS: u64 = 10_000_000_000 / 8;
        let rtt = Duration::from_millis(100);
        assert_eq!(needed(rtt, TEN_GIGABITS), 125_000_000);
        for (bytes, warnings) in [(4 << 20, 1), (64 << 20, 0)] {
            let mut found = Findings::default();
            check_window(&mut found, ("send", "tcp_wmem"), bytes, rtt, TEN_GIGABITS);
            assert_eq!(found.report.count(Verdict::Warning), warnings, "{bytes}");
        }
    }
}
