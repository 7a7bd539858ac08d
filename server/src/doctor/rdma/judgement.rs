//! What the trials mean: the channel, the rates, what limited them, and the options to use.

use std::time::Duration;

use super::ABOUT;
use super::messages::{Direction, Measured, Trial};
use super::stacks::Stacks;
use crate::check::report::counted;
use crate::doctor::bottleneck::{Bottleneck, Facts, Limits, Rdma};
use crate::doctor::diagnosis::diagnose;
use crate::doctor::findings::Findings;
use crate::doctor::speed::rate;

/// The option `message` of the driver where none is set.
const USUAL_MESSAGE: u64 = 256 << 10;

/// A difference between two rates that another run may have as well.
const NOISE: f64 = 1.1;

/// A trial with the measurements of both ends.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) trial: Trial,
    pub(super) error: Option<String>,
    here: Measured,
    there: Measured,
}

impl Row {
    pub(super) fn done(trial: Trial, here: Measured, there: Measured) -> Self {
        Self {
            trial,
            error: None,
            here,
            there,
        }
    }

    pub(super) fn failed(trial: Trial, error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::done(trial, Measured::default(), Measured::default())
        }
    }

    /// What arrived, in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        match self.trial.direction {
            Direction::Put => self.there.rate,
            Direction::Get => self.here.rate,
        }
    }

    pub(super) fn queue_pairs(&self) -> u64 {
        self.sender().number("queue-pairs").max(1)
    }

    fn sender(&self) -> &Measured {
        match self.trial.direction {
            Direction::Put => &self.here,
            Direction::Get => &self.there,
        }
    }

    fn is_over_adapter(&self) -> bool {
        self.sender().text("provider") == "verbs"
    }

    fn name(&self) -> String {
        let direction = match self.trial.direction {
            Direction::Put => "send",
            Direction::Get => "receive",
        };
        let message = size(self.trial.message_bytes);
        match self.trial.queue_pairs {
            0 => format!("{direction} with message={message}"),
            count => format!("{direction} with message={message};qps={count}"),
        }
    }
}

/// `256K` or `1M`, as options have it.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes.div_ceil(1 << 10)),
    }
}

/// Reports the trials.
pub(super) fn judge(report: &mut Findings, rows: &[Row], stacks: &Stacks) {
    if let Some(first) = rows.iter().find(|row| row.error.is_none()) {
        tell_channel(report, first);
    }
    for row in rows {
        tell_row(report, row);
    }
    let sent = |row: &&Row| row.error.is_none() && row.trial.direction == Direction::Put;
    let best = rows.iter().filter(sent);
    let Some(best) = best.max_by(|one, other| one.rate().total_cmp(&other.rate())) else {
        return;
    };
    let cause = Cause::of(best);
    tell_cause(report, &cause);
    let usual = rows
        .iter()
        .filter(sent)
        .find(|row| row.trial.queue_pairs == 0 && row.trial.message_bytes == USUAL_MESSAGE);
    let options = options(best, usual, &cause);
    let typed = stacks.typed(&options);
    let text = match options.is_empty() {
        true => format!("the default options are as good as the others: {typed}"),
        false => format!("use {typed}"),
    };
    report.ok(
        ABOUT,
        format!("{text} (gridhaul copy --stack '{typed}', globus-url-copy -dcstack '{typed}', stack in the file of the server)"),
    );
}

fn tell_channel(report: &mut Findings, row: &Row) {
    let sender = row.sender();
    let queue_pairs = usize::try_from(row.queue_pairs()).unwrap_or(usize::MAX);
    let common = format!(
        "ring of {} MiB, {}, round trip of {:.2} ms",
        sender.number("ring-bytes") >> 20,
        counted(queue_pairs, "queue pair"),
        sender.number("round-trip-microseconds") as f64 / 1000.0
    );
    if row.is_over_adapter() {
        let text = format!(
            "channel: adapters {} here and {} there, {}, packets of {} bytes, {common}",
            row.here.text("device"),
            row.there.text("device"),
            sender.text("protocol"),
            sender.number("mtu-bytes")
        );
        return report.ok(ABOUT, text);
    }
    report.warning(
        ABOUT,
        format!("channel: no adapter carries it: it is iWARP over TCP by this program (provider soft), {common}"),
        "if both machines have adapters, give the address of the other one's, and look at gridhaul-server check --rdma at both ends",
    );
}

fn tell_row(report: &mut Findings, row: &Row) {
    let name = row.name();
    if let Some(error) = &row.error {
        return report.error(
            ABOUT,
            format!("{name} failed: {error}"),
            "see the symptoms in the RDMA guide, and gridhaul-server check --rdma at both ends",
        );
    }
    let retries = row.sender().number("retries");
    let lost = match (retries, row.sender().number("stalls")) {
        (0, 0) => String::new(),
        (retries, 0) => format!(", {retries} packets sent again"),
        (retries, stalls) => {
            format!(", {retries} packets sent again, {stalls} queue pairs given up")
        }
    };
    report.ok(
        ABOUT,
        format!(
            "{name}: {}; {:.0} % of a processor here, {:.0} % there{lost}",
            rate(row.rate()),
            100.0 * row.here.busy,
            100.0 * row.there.busy
        ),
    );
}

/// What limited a trial.
#[derive(Debug, Clone, PartialEq)]
enum Cause {
    /// One that transfers have as well.
    Known(Bottleneck, String),
    /// The ring, in bytes, is less than rate and distance need.
    Ring {
        bytes: u64,
        evidence: String,
    },
    /// A process kept a processor busy.
    Processor(String),
    Unknown,
}

impl Cause {
    fn of(row: &Row) -> Self {
        /// Credit comes back for a quarter of a ring at a time, so three quarters are on their way at most.
        const USABLE: f64 = 0.75;
        /// A part of what a ring allows that is taken for all of it.
        const NEARLY: f64 = 0.8;
        const BUSY: f64 = 0.9;

        let sender = row.sender();
        let round_trip = Duration::from_micros(sender.number("round-trip-microseconds"));
        let ring_bytes = sender.number("ring-bytes");
        let facts = Facts {
            sends: true,
            took: sender.took,
            bytes: sender.bytes,
            channels: 1,
            rate: sender.optional_number("rate"),
            rdma: Some(Rdma {
                stalls: sender.number("stalls"),
                retries: sender.number("retries"),
                ring_bytes,
                wanted_ring_bytes: sender.optional_number("wanted-ring-bytes"),
            }),
            ..Facts::default()
        };
        let diagnosis = diagnose(&facts, &Limits::default());
        match diagnosis.bottleneck {
            Bottleneck::Unknown => {}
            Bottleneck::Ring => {
                return Self::Ring {
                    bytes: ring_bytes,
                    evidence: diagnosis.evidence,
                };
            }
            other => return Self::Known(other, diagnosis.evidence),
        }
        let allowed = ring_bytes as f64 * USABLE / round_trip.as_secs_f64().max(1e-9);
        if !round_trip.is_zero() && row.rate() >= allowed * NEARLY {
            let evidence = format!(
                "a ring of {} MiB lets {} through at a round trip of {:.2} ms",
                ring_bytes >> 20,
                rate(allowed),
                round_trip.as_secs_f64() * 1000.0
            );
            return Self::Ring {
                bytes: ring_bytes,
                evidence,
            };
        }
        let ends = [("here", &row.here), ("there", &row.there)];
        let busiest = ends
            .into_iter()
            .max_by(|(_, one), (_, other)| one.busy.total_cmp(&other.busy));
        match busiest {
            Some((end, measured)) if measured.busy >= BUSY => Self::Processor(format!(
                "the process {end} kept {:.1} processors busy",
                measured.busy
            )),
            _ => Self::Unknown,
        }
    }
}

fn tell_cause(report: &mut Findings, cause: &Cause) {
    match cause {
        Cause::Known(bottleneck, evidence) if bottleneck.is_problem() => {
            report.warning(ABOUT, format!("limit: {evidence}"), bottleneck.remedy());
        }
        Cause::Known(bottleneck, evidence) => {
            report.ok(ABOUT, format!("limit: {evidence}; {}", bottleneck.remedy()));
        }
        Cause::Ring { evidence, .. } => {
            report.warning(ABOUT, format!("limit: {evidence}"), Bottleneck::Ring.remedy());
        }
        Cause::Processor(evidence) => report.ok(
            ABOUT,
            format!(
                "limit: {evidence}: the processor, unless it waited by polling; parallel channels use more processors (-p 4)"
            ),
        ),
        Cause::Unknown => report.ok(
            ABOUT,
            "limit: no losses, no short ring, no busy processor: the path, or other traffic on it; compare the rate with that of the \
             slowest link",
        ),
    }
}

/// The options that made a difference, or would.
fn options(best: &Row, usual: Option<&Row>, cause: &Cause) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    let is_better = usual.is_none_or(|usual| best.rate() > usual.rate() * NOISE);
    if is_better && best.trial.message_bytes != USUAL_MESSAGE {
        options.push(("message", size(best.trial.message_bytes)));
    }
    if is_better && best.trial.queue_pairs > 0 {
        options.push(("qps", best.trial.queue_pairs.to_string()));
    }
    match cause {
        // The ring of four slabs is doubled.
        Cause::Ring { bytes, .. } => options.push(("slab", size(bytes.saturating_mul(2) / 4))),
        Cause::Known(Bottleneck::Stalls | Bottleneck::Retries, _) if best.is_over_adapter() => {
            options.push(("rate", "auto".to_owned()));
        }
        _ => {}
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn measured(rate: f64, busy: f64, details: &str) -> Measured {
        let line = format!("done {:.0} 3000000 {rate} {busy} {details}", rate * 3.0);
        Measured::parse(line.trim_end()).expect("a result")
    }

    fn row(message_bytes: u64, queue_pairs: u8, rate: f64, details: &str) -> Row {
        let trial = Trial {
            direction: Direction::Put,
            message_bytes,
            queue_pairs,
            time: 3 * SECOND,
        };
        Row::done(
            trial,
            measured(rate, 0.5, details),
            measured(rate, 0.25, details),
        )
    }

    fn report(rows: &[Row]) -> String {
        let mut report = Findings::default();
        judge(&mut report, rows, &Stacks::of_defaults());
        let mut text = Vec::new();
        report.report.write(&mut text).expect("written");
        String::from_utf8(text).expect("UTF-8")
    }

    const ADAPTER: &str = "provider=verbs device=mlx5_0/1 protocol=RoCE mtu-bytes=4096 queue-pairs=1 ring-bytes=67108864 \
                           round-trip-microseconds=1000";

    #[test]
    fn a_report_has_channel_rates_limit_and_options() {
        let mut back = row(1 << 20, 0, 2e9, ADAPTER);
        back.trial.direction = Direction::Get;
        let rows = [
            row(64 << 10, 0, 1e9, ADAPTER),
            row(256 << 10, 0, 1.5e9, ADAPTER),
            row(1 << 20, 0, 2e9, ADAPTER),
            back,
            row(
                1 << 20,
                2,
                3e9,
                &ADAPTER.replace("queue-pairs=1", "queue-pairs=2"),
            ),
        ];
        let expected = "\
ok       rdma: channel: adapters mlx5_0/1 here and mlx5_0/1 there, RoCE, packets of 4096 bytes, ring of 64 MiB, 1 queue pair, round trip of 1.00 ms
ok       rdma: send with message=64K: 1000 MB/s (8.0 Gb/s); 50 % of a processor here, 25 % there
ok       rdma: send with message=256K: 1500 MB/s (12.0 Gb/s); 50 % of a processor here, 25 % there
ok       rdma: send with message=1M: 2000 MB/s (16.0 Gb/s); 50 % of a processor here, 25 % there
ok       rdma: receive with message=1M: 2000 MB/s (16.0 Gb/s); 50 % of a processor here, 25 % there
ok       rdma: send with message=1M;qps=2: 3000 MB/s (24.0 Gb/s); 50 % of a processor here, 25 % there
ok       rdma: limit: no losses, no short ring, no busy processor: the path, or other traffic on it; compare the rate with that of the slowest link
ok       rdma: use rdma:message=1M;qps=2 (gridhaul copy --stack 'rdma:message=1M;qps=2', globus-url-copy -dcstack 'rdma:message=1M;qps=2', stack in the file of the server)
0 errors, 0 warnings
";
        assert_eq!(report(&rows), expected);
    }

    #[test]
    fn causes_have_options() {
        let text =
            |details: &str| report(&[row(256 << 10, 0, 1e9, &format!("{ADAPTER} {details}"))]);
        let sound = text("");
        assert!(
            sound.contains("ok       rdma: the default options are as good as the others: rdma ("),
            "{sound}"
        );
        let lossy = text("retries=90000");
        assert!(
            lossy.contains("warning  rdma: limit: 90000 packets were sent again"),
            "{lossy}"
        );
        assert!(lossy.contains("use rdma:rate=auto ("), "{lossy}");
        let stalled = text("stalls=2 retries=7");
        assert!(
            stalled.contains(", 7 packets sent again, 2 queue pairs given up\n"),
            "{stalled}"
        );
        assert!(stalled.contains("use rdma:rate=auto ("), "{stalled}");
        // 64 MiB carry half a gigabyte per second over 100 ms.
        let far = ADAPTER.replace("microseconds=1000", "microseconds=100000");
        let short = report(&[row(256 << 10, 0, 0.45e9, &far)]);
        assert!(
            short.contains("warning  rdma: limit: a ring of 64 MiB lets 503 MB/s"),
            "{short}"
        );
        assert!(short.contains("use rdma:slab=32M ("), "{short}");
        let mut busy = row(256 << 10, 0, 1e9, ADAPTER);
        busy.there.busy = 1.3;
        let busy = report(&[busy]);
        assert!(
            busy.contains("limit: the process there kept 1.3 processors busy"),
            "{busy}"
        );
    }

    #[test]
    fn a_path_without_adapters_is_a_warning_and_one_without_data_an_error() {
        let soft = "provider=soft queue-pairs=1 ring-bytes=16777216 retries=99999";
        let text = report(&[row(256 << 10, 0, 1e9, soft)]);
        assert!(
            text.contains("warning  rdma: channel: no adapter carries it"),
            "{text}"
        );
        assert!(!text.contains("rate=auto ("), "TCP finds the rate: {text}");
        let failed = Row::failed(
            row(64 << 10, 0, 0.0, "").trial,
            "no packet of the adapter".to_owned(),
        );
        let text = report(&[failed]);
        assert!(
            text.starts_with(
                "error    rdma: send with message=64K failed: no packet of the adapter; see"
            ),
            "{text}"
        );
        assert!(text.ends_with("1 error, 0 warnings\n"), "{text}");
    }
}
