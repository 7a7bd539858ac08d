//! What the two ends tell each other.
//!
//! ```text
//!   both        gridhaul-doctor 1 NONCE
//!   asker       PROOF
//!   listener    welcome PROOF
//!   asker       trial put|get MESSAGE QUEUE-PAIRS MILLISECONDS
//!   listener    port PORT TOKEN                      then a channel, on which the asker first sends the token
//!   listener    done BYTES MICROSECONDS RATE BUSY NAME=VALUE ...
//!   asker       end
//! ```
//!
//! The listener may answer `error TEXT` to a trial.

use std::collections::BTreeMap;
use std::time::Duration;

use gridhaul_stack::{Channel, DetailValue};

/// The name and version of the protocol.
pub(super) const HELLO: &str = "gridhaul-doctor 1";

/// The longest trial.
pub(super) const MOST_TIME: Duration = Duration::from_secs(10);

/// Which way the bytes of a trial go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the asker to the listener.
    Put,
    /// From the listener to the asker.
    Get,
}

/// A measurement that an asker wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) direction: Direction,
    /// The option `message`, in bytes.
    pub(super) message_bytes: u64,
    /// The option `qps`; 0 leaves it to the driver.
    pub(super) queue_pairs: u8,
    pub(super) time: Duration,
}

impl Trial {
    const LEAST_MESSAGE: u64 = 4096;
    const MOST_MESSAGE: u64 = 4 << 20;
    const MOST_QUEUE_PAIRS: u8 = 16;
    const LEAST_TIME: Duration = Duration::from_millis(100);

    pub(super) fn line(&self) -> String {
        let direction = match self.direction {
            Direction::Put => "put",
            Direction::Get => "get",
        };
        format!(
            "trial {direction} {} {} {}",
            self.message_bytes,
            self.queue_pairs,
            self.time.as_millis()
        )
    }

    /// `None` if it is no trial, or one beyond the bounds.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("trial ")?.split(' ');
        let direction = match words.next()? {
            "put" => Direction::Put,
            "get" => Direction::Get,
            _ => return None,
        };
        let trial = Self {
            direction,
            message_bytes: words.next()?.parse().ok()?,
            queue_pairs: words.next()?.parse().ok()?,
            time: Duration::from_millis(words.next()?.parse().ok()?),
        };
        let is_within = (Self::LEAST_MESSAGE..=Self::MOST_MESSAGE).contains(&trial.message_bytes)
            && trial.queue_pairs <= Self::MOST_QUEUE_PAIRS
            && (Self::LEAST_TIME..=MOST_TIME).contains(&trial.time);
        (is_within && words.next().is_none()).then_some(trial)
    }
}

/// What one end of a channel measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) took: Duration,
    /// In bytes per second, after the start.
    pub(super) rate: f64,
    /// Processors that the process kept busy: 0.5 is half of one.
    pub(super) busy: f64,
    /// What the driver tells about the channel, by the names of the log.
    pub(super) details: BTreeMap<String, String>,
}

/// The details that the ends exchange.
const DETAILS: [&str; 13] = [
    "provider",
    "device",
    "protocol",
    "mtu-bytes",
    "queue-pairs",
    "ring-bytes",
    "wanted-ring-bytes",
    "message-bytes",
    "round-trip-microseconds",
    "rate",
    "stalls",
    "restored",
    "retries",
];

impl Measured {
    /// Adds what the driver tells about a channel.
    pub(super) fn describe(&mut self, channel: &dyn Channel) {
        for detail in channel.info().details {
            let value = match detail.value {
                DetailValue::Text(text) => text.into_owned(),
                DetailValue::Setting(number)
                | DetailValue::Holding(number)
                | DetailValue::Count(number)
                | DetailValue::Shared(number) => number.to_string(),
            };
            self.add(detail.name, &value);
        }
    }

    fn add(&mut self, name: &str, value: &str) {
        const MOST_BYTES: usize = 64;
        let is_plain = value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/_.-+".contains(&byte));
        let is_short = (1..=MOST_BYTES).contains(&value.len());
        if DETAILS.contains(&name) && is_plain && is_short {
            self.details.insert(name.to_owned(), value.to_owned());
        }
    }

    /// A detail that is a number; 0 if the driver does not tell it.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.optional_number(name).unwrap_or(0)
    }

    /// A detail that is a number.
    pub(super) fn optional_number(&self, name: &str) -> Option<u64> {
        self.details.get(name)?.parse().ok()
    }

    /// A detail that is a text; empty if the driver does not tell it.
    pub(super) fn text(&self, name: &str) -> &str {
        self.details.get(name).map_or("", String::as_str)
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!(
            "done {} {} {:.0} {:.3}",
            self.bytes,
            self.took.as_micros(),
            self.rate,
            self.busy
        );
        for (name, value) in &self.details {
            line.push_str(&format!(" {name}={value}"));
        }
        line
    }

    /// `None` if it is no such line, or one with numbers that cannot be.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("done ")?.split(' ');
        let mut measured = Self {
            bytes: words.next()?.parse().ok()?,
            took: Duration::from_micros(words.next()?.parse().ok()?),
            rate: words.next()?.parse().ok()?,
            busy: words.next()?.parse().ok()?,
            details: BTreeMap::new(),
        };
        let is_sane = (0.0..1e15).contains(&measured.rate) && (0.0..1e6).contains(&measured.busy);
        for word in words {
            let (name, value) = word.split_once('=')?;
            measured.add(name, value);
        }
        is_sane.then_some(measured)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trials_have_bounds() {
        let trial = Trial {
            direction: Direction::Get,
            message_bytes: 1 << 20,
            queue_pairs: 2,
            time: Duration::from_secs(3),
        };
        assert_eq!(trial.line(), "trial get 1048576 2 3000");
        assert_eq!(Trial::parse(&trial.line()), Some(trial));
        for wrong in [
            "",
            "trial",
            "trial get",
            "trial both 1048576 2 3000",
            "trial get 4095 2 3000",
            "trial get 4194305 2 3000",
            "trial get 1048576 17 3000",
            "trial get 1048576 2 99",
            "trial get 1048576 2 10001",
            "trial get 1048576 2 3000 1",
            "trial get -1 2 3000",
        ] {
            assert_eq!(Trial::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let mut measured = Measured {
            bytes: 7 << 30,
            took: Duration::from_millis(3001),
            rate: 2.5e9,
            busy: 0.75,
            details: BTreeMap::new(),
        };
        measured.add("device", "mlx5_0/1");
        measured.add("retries", "12");
        measured.add("other", "1");
        measured.add("provider", "a b\n");
        assert_eq!(measured.details.len(), 2);
        let line = measured.line();
        assert_eq!(
            line,
            "done 7516192768 3001000 2500000000 0.750 device=mlx5_0/1 retries=12"
        );
        assert_eq!(Measured::parse(&line), Some(measured));
        for wrong in [
            "done 1 1 NaN 0",
            "done 1 1 inf 0",
            "done 1 1 -1 0",
            "done 1 1 1",
            "done 1 1 1 1 x",
        ] {
            assert_eq!(Measured::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_message_or_none(line in "(trial|done|port)? ?.{0,80}") {
            if let Some(trial) = Trial::parse(&line) {
                prop_assert!(trial.time <= MOST_TIME);
            }
            if let Some(measured) = Measured::parse(&line) {
                prop_assert!(measured.rate.is_finite());
            }
        }
    }
}
