//! What limited a transfer, from what the kernel and the server recorded about it.

use std::time::Duration;

use super::speed::rate;

/// The limits of this machine. `None` is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// The largest receive buffer of a socket.
    pub(super) receive_bytes: Option<u64>,
    /// The speed of the network, in bytes per second.
    pub(super) link: Option<u64>,
}

/// The facts of a finished transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Facts {
    /// Whether this server sent the data.
    pub(super) sends: bool,
    pub(super) took: Duration,
    pub(super) bytes: u64,
    pub(super) channels: u64,
    /// Of the slowest channel.
    pub(super) rtt: Option<Duration>,
    /// Packets that were sent again, of all channels.
    pub(super) retransmits: Option<u64>,
    /// The times of `TCP_INFO`, sums of all channels.
    pub(super) times: Option<Times>,
}

/// Where the time of a sender went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// Data was on its way.
    pub(super) busy: Duration,
    /// Of that, the receiver's window was full.
    pub(super) receiver: Duration,
    /// Of that, the own send buffer was too small.
    pub(super) buffer: Duration,
}

/// What limited a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Bottleneck {
    /// It was too short for its speed to mean anything.
    Short,
    /// The network's own speed.
    Link,
    /// This server had nothing to send: its storage, or its processors.
    OwnStorage,
    /// The receiver did not take the data: its storage, its processors or its buffers.
    Receiver,
    /// The send buffers of this machine.
    SendBuffer,
    /// The receive buffers of this machine.
    ReceiveBuffer,
    /// Packets were lost: congestion, a bad cable, or a policer.
    Loss,
    /// The way of the data, or its congestion control, with the sender ready and the receiver too.
    Path,
    /// The sender at the other end.
    Sender,
    /// There are no facts.
    Unknown,
}

/// A bottleneck, and why it is taken for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) bottleneck: Bottleneck,
    pub(super) evidence: String,
}

impl Bottleneck {
    /// What it is, and what to do.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Short => {
                "too short to tell; many small files want pipelining and parallel transfers"
            }
            Self::Link => "the network is full: nothing to gain here",
            Self::OwnStorage => {
                "this server had nothing to send: look at its storage (gridhaul-server doctor --disk DIR) and its processors"
            }
            Self::Receiver => {
                "the receiver did not take the data: its storage, its processors, or its receive buffers for this distance"
            }
            Self::SendBuffer => {
                "the send buffers here are too small for this distance: raise the last number of net.ipv4.tcp_wmem, or use more \
                 parallel channels"
            }
            Self::ReceiveBuffer => {
                "the receive buffers here are too small for this distance: raise the last number of net.ipv4.tcp_rmem, or use \
                 more parallel channels"
            }
            Self::Loss => {
                "packets were lost: look for a policer, a full queue or a bad cable on the path; tcp:cc=bbr or a rate limit helps \
                 against policers"
            }
            Self::Path => {
                "sender and receiver were ready: the network or its congestion control is the limit; try more parallel channels"
            }
            Self::Sender => {
                "the sender at the other end, or the path from there, is the limit: look at the facts of that side"
            }
            Self::Unknown => {
                "nothing is known about its channels: they did not run over TCP of this kernel"
            }
        }
    }
}

/// Which part of the whole counts as most of it, or as little.
const MUCH: f64 = 0.3;
const HALF: f64 = 0.5;

/// Explains what limited a transfer.
pub(super) fn diagnose(facts: &Facts, limits: &Limits) -> Diagnosis {
    /// Shorter transfers spend their time in slow start.
    const SHORT: Duration = Duration::from_millis(500);
    const FEW_BYTES: u64 = 8 << 20;
    /// Headers take the rest of the network's speed.
    const FULL: f64 = 0.85;

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
    if facts.sends {
        of_sender(facts, seconds)
    } else {
        of_receiver(facts, limits, speed)
    }
}

fn of_sender(facts: &Facts, seconds: f64) -> Diagnosis {
    /// Congestion control finds its rate with less loss than one packet in a thousand.
    const MANY_LOST: f64 = 0.001;
    /// The data of a usual packet.
    const SEGMENT: f64 = 1448.0;

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
        let evidence = format!(
            "{lost} packets were sent again, {:.2} % of all",
            100.0 * of_all
        );
        return diagnosis(Bottleneck::Loss, evidence);
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

fn diagnosis(bottleneck: Bottleneck, evidence: String) -> Diagnosis {
    Diagnosis {
        bottleneck,
        evidence,
    }
}

#[cfg(test)]
mod tests {
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
                Facts {
                    retransmits: Some(5000),
                    ..sent()
                },
                Bottleneck::Loss,
            ),
            (
                Facts {
                    retransmits: Some(20),
                    ..sent()
                },
                Bottleneck::Path,
            ),
            (
                Facts {
                    bytes: 11_000_000_000,
                    ..sent()
                },
                Bottleneck::Link,
            ),
            (
                Facts {
                    took: SECOND / 10,
                    ..sent()
                },
                Bottleneck::Short,
            ),
            (
                Facts {
                    bytes: 1000,
                    ..sent()
                },
                Bottleneck::Short,
            ),
            (
                Facts {
                    times: None,
                    ..sent()
                },
                Bottleneck::Unknown,
            ),
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
