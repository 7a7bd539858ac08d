//! What limited a transfer, from what the kernel, the drivers and the server recorded about it.

use std::time::Duration;

use super::bottleneck::{Bottleneck, Facts, Limits, Rdma};
use super::speed::rate;

/// A bottleneck, and why it is taken for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) bottleneck: Bottleneck,
    pub(super) evidence: String,
}

/// Which part of the whole counts as most of it, or as little.
const MUCH: f64 = 0.3;
const HALF: f64 = 0.5;

/// Headers take the rest of the network's speed, and of a rate.
const FULL: f64 = 0.85;

/// Congestion control finds its rate with less loss than one packet in a thousand.
const MANY_LOST: f64 = 0.001;

/// The data of a usual packet.
const SEGMENT: f64 = 1448.0;

/// Explains what limited a transfer.
pub(super) fn diagnose(facts: &Facts, limits: &Limits) -> Diagnosis {
    /// Shorter transfers spend their time in slow start.
    const SHORT: Duration = Duration::from_millis(500);
    const FEW_BYTES: u64 = 8 << 20;

    let seconds = facts.took.as_secs_f64();
    if facts.took < SHORT || facts.bytes < FEW_BYTES {
        let evidence = format!("{} bytes in {seconds:.2} s", facts.bytes);
        return diagnosis(Bottleneck::Short, evidence);
    }
    let speed = facts.bytes as f64 / seconds;
    if let Some(link) = limits.link.filter(|link| speed >= *link as f64 * FULL) {
        let evidence = format!("{} of {}", rate(speed), rate(link as f64));
        return diagnosis(Bottleneck::Link, evidence);
    }
    let waited = facts.bandwidth_wait.as_secs_f64() / seconds;
    if waited >= MUCH {
        let evidence = format!(
            "it waited for bandwidth {:.0} % of the time",
            100.0 * waited
        );
        return diagnosis(Bottleneck::GroupLimit, evidence);
    }
    if let Some(paced) = pace(facts).filter(|paced| facts.sends && speed >= paced * FULL) {
        let evidence = format!("{} of {}", rate(speed), rate(paced));
        return diagnosis(Bottleneck::Rate, evidence);
    }
    match facts.rdma {
        Some(rdma) => of_rdma(facts, &rdma),
        None if facts.sends => of_sender(facts, seconds),
        None => of_receiver(facts, limits, speed),
    }
}

/// The rate of its pacing. Over TCP each channel has its own, and over RDMA the channels to a host share one.
fn pace(facts: &Facts) -> Option<f64> {
    let channels = match facts.rdma {
        Some(_) => 1,
        None => facts.channels.max(1),
    };
    Some(facts.rate? as f64 * channels as f64)
}

fn of_rdma(facts: &Facts, rdma: &Rdma) -> Diagnosis {
    if rdma.stalls > 0 {
        let evidence = format!("{} queue pairs were given up", rdma.stalls);
        return diagnosis(Bottleneck::Stalls, evidence);
    }
    let of_all = rdma.retries as f64 * SEGMENT / facts.bytes as f64;
    if of_all >= MANY_LOST {
        let evidence = format!(
            "{} packets were sent again, {:.2} % of all",
            rdma.retries,
            100.0 * of_all
        );
        return diagnosis(Bottleneck::Retries, evidence);
    }
    if let Some(wanted) = rdma.wanted_ring_bytes {
        let evidence = format!(
            "they have {} KiB, and {} KiB would fit",
            rdma.ring_bytes >> 10,
            wanted >> 10
        );
        return diagnosis(Bottleneck::Ring, evidence);
    }
    let evidence = "no stalls, few retries, and the rings are long enough".to_owned();
    diagnosis(Bottleneck::Unknown, evidence)
}

fn of_sender(facts: &Facts, seconds: f64) -> Diagnosis {
    let Some(times) = facts.times else {
        return diagnosis(Bottleneck::Unknown, "no times of its channels".to_owned());
    };
    let whole = seconds * facts.channels.max(1) as f64;
    let busy = times.busy.as_secs_f64();
    let part = |time: Duration, of: f64| {
        if of > 0.0 {
            time.as_secs_f64() / of
        } else {
            0.0
        }
    };
    if busy / whole < HALF {
        let evidence = format!(
            "data was on its way for {:.0} % of the time",
            100.0 * busy / whole
        );
        return diagnosis(Bottleneck::OwnStorage, evidence);
    }
    let (receiver, buffer) = (part(times.receiver, busy), part(times.buffer, busy));
    if receiver.max(buffer) >= MUCH {
        let (bottleneck, whose, part) = if receiver >= buffer {
            (Bottleneck::Receiver, "the receiver's window", receiver)
        } else {
            (Bottleneck::SendBuffer, "the own send buffer", buffer)
        };
        let evidence = format!(
            "{whose} was full for {:.0} % of the sending time",
            100.0 * part
        );
        return diagnosis(bottleneck, evidence);
    }
    let lost = facts.retransmits.unwrap_or(0);
    let of_all = lost as f64 * SEGMENT / facts.bytes as f64;
    if of_all >= MANY_LOST {
        return of_losses(facts, lost, of_all);
    }
    let evidence = format!(
        "data was on its way for {:.0} % of the time, the receiver's window was full for {:.0} %, {lost} packets were sent again",
        100.0 * (busy / whole).min(1.0),
        100.0 * receiver
    );
    diagnosis(Bottleneck::Path, evidence)
}

fn of_receiver(facts: &Facts, limits: &Limits, speed: f64) -> Diagnosis {
    /// A window that is used by this much limits the speed.
    const NEARLY: f64 = 0.8;

    let Some(rtt) = facts.rtt else {
        return diagnosis(
            Bottleneck::Unknown,
            "no round-trip time of its channels".to_owned(),
        );
    };
    let on_the_way = speed / facts.channels.max(1) as f64 * rtt.as_secs_f64();
    // Half of a receive buffer is data (tcp(7)).
    let window = limits.receive_bytes.map(|bytes| bytes as f64 / 2.0);
    if let Some(window) = window.filter(|window| on_the_way >= window * NEARLY) {
        let evidence = format!(
            "each channel has {:.1} MiB on its way at {:.1} ms, and its window holds {:.1} MiB",
            on_the_way / f64::from(1 << 20),
            rtt.as_secs_f64() * 1000.0,
            window / f64::from(1 << 20)
        );
        return diagnosis(Bottleneck::ReceiveBuffer, evidence);
    }
    let evidence = format!(
        "{} arrived over {} channels, and the receive buffers had room",
        rate(speed),
        facts.channels
    );
    diagnosis(Bottleneck::Sender, evidence)
}

/// A policer drops packets above its rate without a queue, so the round-trip time does not grow; a link that is full has a queue
/// before it (Flach et al., An Internet-Wide Analysis of Traffic Policing, SIGCOMM 2016).
fn of_losses(facts: &Facts, lost: u64, of_all: f64) -> Diagnosis {
    /// The smoothed time of a path without queues is little more than the shortest one.
    const GROWN: f64 = 1.25;

    let lost = format!(
        "{lost} packets were sent again, {:.2} % of all",
        100.0 * of_all
    );
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    match facts.rtt.zip(facts.least_rtt) {
        Some((rtt, least)) => {
            let bottleneck = if rtt.as_secs_f64() < least.as_secs_f64() * GROWN {
                Bottleneck::Policer
            } else {
                Bottleneck::Loss
            };
            let evidence = format!(
                "{lost}, at a round-trip time of {:.1} ms; the shortest was {:.1} ms",
                milliseconds(rtt),
                milliseconds(least)
            );
            diagnosis(bottleneck, evidence)
        }
        None => diagnosis(Bottleneck::Loss, lost),
    }
}

fn diagnosis(bottleneck: Bottleneck, evidence: String) -> Diagnosis {
    Diagnosis {
        bottleneck,
        evidence,
    }
}

#[cfg(test)]
mod tests {
    use super::super::bottleneck::Times;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits {
        receive_bytes: Some(8 << 20),
        link: Some(1_250_000_000),
    };

    /// A `RETR` of 1 GB in 10 s over 2 channels, on which data was always on its way.
    fn sent() -> Facts {
        Facts {
            sends: true,
            took: 10 * SECOND,
            bytes: 1_000_000_000,
            channels: 2,
            rtt: Some(Duration::from_millis(20)),
            retransmits: Some(0),
            times: Some(Times {
                busy: 20 * SECOND,
                ..Times::default()
            }),
            ..Facts::default()
        }
    }

    /// The same with a change.
    fn but(change: impl FnOnce(&mut Facts)) -> Facts {
        let mut facts = sent();
        change(&mut facts);
        facts
    }

    /// The same over the driver `rdma`.
    fn over_rdma(stalls: u64, retries: u64, wanted_ring_bytes: Option<u64>) -> Facts {
        Facts {
            retransmits: None,
            times: None,
            rdma: Some(Rdma {
                stalls,
                retries,
                ring_bytes: 1 << 20,
                wanted_ring_bytes,
            }),
            ..sent()
        }
    }

    /// Packets were lost, with these round-trip times in milliseconds.
    fn lossy(rtt: u64, least_rtt: u64) -> Facts {
        Facts {
            retransmits: Some(5000),
            rtt: Some(Duration::from_millis(rtt)),
            least_rtt: Some(Duration::from_millis(least_rtt)),
            ..sent()
        }
    }

    fn with_times(busy: u32, receiver: u32, buffer: u32) -> Facts {
        Facts {
            times: Some(Times {
                busy: busy * SECOND,
                receiver: receiver * SECOND,
                buffer: buffer * SECOND,
            }),
            ..sent()
        }
    }

    #[test]
    fn each_cause_is_told_from_the_others() {
        let received = Facts {
            sends: false,
            times: None,
            ..sent()
        };
        for (facts, bottleneck) in [
            (sent(), Bottleneck::Path),
            (with_times(4, 0, 0), Bottleneck::OwnStorage),
            (with_times(20, 12, 1), Bottleneck::Receiver),
            (with_times(20, 1, 12), Bottleneck::SendBuffer),
            // Little was on its way, so the receiver's window does not matter.
            (with_times(4, 4, 0), Bottleneck::OwnStorage),
            (
                but(|facts| facts.retransmits = Some(5000)),
                Bottleneck::Loss,
            ),
            (lossy(80, 20), Bottleneck::Loss),
            (lossy(21, 20), Bottleneck::Policer),
            (
                but(|facts| facts.bandwidth_wait = 5 * SECOND),
                Bottleneck::GroupLimit,
            ),
            (but(|facts| facts.rate = Some(51_000_000)), Bottleneck::Rate),
            (
                but(|facts| facts.rate = Some(1_000_000_000)),
                Bottleneck::Path,
            ),
            (over_rdma(1, 5, None), Bottleneck::Stalls),
            (over_rdma(0, 5000, None), Bottleneck::Retries),
            (over_rdma(0, 0, Some(4 << 20)), Bottleneck::Ring),
            (over_rdma(0, 5, None), Bottleneck::Unknown),
            (
                Facts {
                    // Of the path, not of each channel.
                    rate: Some(102_000_000),
                    ..over_rdma(0, 0, Some(4 << 20))
                },
                Bottleneck::Rate,
            ),
            (but(|facts| facts.retransmits = Some(20)), Bottleneck::Path),
            (but(|facts| facts.bytes = 11_000_000_000), Bottleneck::Link),
            (but(|facts| facts.took = SECOND / 10), Bottleneck::Short),
            (but(|facts| facts.bytes = 1000), Bottleneck::Short),
            (but(|facts| facts.times = None), Bottleneck::Unknown),
            (received, Bottleneck::Sender),
            (
                // 50 MB/s a channel at 100 ms are 5 MB, and the window holds 4 MiB.
                Facts {
                    rtt: Some(Duration::from_millis(100)),
                    ..received
                },
                Bottleneck::ReceiveBuffer,
            ),
            (
                Facts {
                    rtt: None,
                    ..received
                },
                Bottleneck::Unknown,
            ),
        ] {
            let found = diagnose(&facts, &LIMITS);
            assert_eq!(found.bottleneck, bottleneck, "{facts:?}: {found:?}");
            assert!(!found.evidence.is_empty());
        }
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        for channels in [0, 1] {
            for sends in [false, true] {
                let facts = Facts {
                    channels,
                    sends,
                    times: Some(Times::default()),
                    ..sent()
                };
                let found = diagnose(&facts, &Limits::default());
                assert!(!found.evidence.contains("NaN"), "{found:?}");
            }
        }
    }
}
