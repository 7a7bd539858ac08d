//! The features of the kernel that drivers use, and the limits of its network settings.

use std::fs;

use gridhaul_stack::Registry;

use super::report::Report;
use crate::machine::{kernel_setting, largest_window};

pub(super) fn check(report: &mut Report, registry: &Registry) {
    for driver in registry.drivers() {
        for finding in driver.check_kernel() {
            report.finding(finding);
        }
    }
    check_windows(report);
    check_congestion_control(report);
    check_frequency(report);
}

/// The largest window limits the throughput over a distance: one window in each round trip.
fn check_windows(report: &mut Report) {
    for (setting, who) in [
        ("net.ipv4.tcp_rmem", "receiving"),
        ("net.ipv4.tcp_wmem", "sending"),
    ] {
        if let Some(bytes) = largest_window(setting) {
            judge_window(report, setting, bytes, &format!("a connection {who} data"));
        }
    }
    for setting in ["net.core.rmem_max", "net.core.wmem_max"] {
        let largest = kernel_setting(setting).and_then(|text| text.parse().ok());
        if let Some(bytes) = largest {
            let who = "a connection whose buffer the client sets (SBUF, -tcp-bs)";
            judge_window(report, setting, bytes, who);
        }
    }
}

fn judge_window(report: &mut Report, setting: &str, bytes: u64, who: &str) {
    const ABOUT: &str = "tcp-windows";
    /// A round trip across a continent.
    const ROUND_TRIP_SECONDS: f64 = 0.1;
    /// 10 Gb/s over that distance.
    const WANTED_BYTES: u64 = 128 << 20;
    /// With less, even a dozen parallel channels do not fill such a line.
    const LEAST_BYTES: u64 = 8 << 20;

    let gigabits = bytes as f64 * 8.0 / ROUND_TRIP_SECONDS / 1e9;
    let reach = format!(
        "{setting} allows {} KiB: {who} has at most {gigabits:.2} Gb/s over a round trip of 100 ms",
        bytes >> 10
    );
    if bytes < LEAST_BYTES {
        report.warning(
            ABOUT,
            format!("{reach}; raise the limit to {WANTED_BYTES} for 10 Gb/s over such distances"),
        );
    } else {
        report.ok(ABOUT, reach);
    }
}

fn check_congestion_control(report: &mut Report) {
    if let Some(name) = kernel_setting("net.ipv4.tcp_congestion_control") {
        let others =
            kernel_setting("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        report.ok(
            "congestion-control",
            format!(
                "{name}; the option cc of a stack chooses among {}",
                others.split_whitespace().collect::<Vec<_>>().join(", ")
            ),
        );
    }
}

/// A processor that saves power raises its clock only some time after a transfer began.
fn check_frequency(report: &mut Report) {
    const ABOUT: &str = "processor";
    let of_first = |name| {
        let path = format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}");
        fs::read_to_string(path).map(|text| text.trim().to_owned())
    };
    // Virtual machines have none.
    let (Ok(governor), Ok(driver)) = (of_first("scaling_governor"), of_first("scaling_driver"))
    else {
        return;
    };
    // With these two drivers the governor of this name follows the load.
    let follows_load = driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate");
    if governor == "powersave" && !follows_load {
        report.warning(
            ABOUT,
            "the frequency governor powersave keeps the clock low: choose performance or schedutil",
        );
    } else {
        report.ok(ABOUT, format!("the frequency governor is {governor}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn windows_are_told_as_what_they_reach() {
        let mut report = Report::default();
        judge_window(&mut report, "a.b", 208 << 10, "it");
        assert_eq!(report.count(Verdict::Warning), 1);
        judge_window(&mut report, "a.b", 64 << 20, "it");
        assert_eq!(report.count(Verdict::Warning), 1);
        let mut written = Vec::new();
        report.write(&mut written).expect("written");
        let written = String::from_utf8(written).expect("UTF-8");
        assert!(written.contains("allows 208 KiB"), "{written}");
        assert!(written.contains("at most 0.02 Gb/s"), "{written}");
        assert!(
            written.contains("raise the limit to 134217728"),
            "{written}"
        );
        assert!(written.contains("at most 5.37 Gb/s"), "{written}");
    }
}
