//! Named values that a driver reports about a channel, for the log, for metrics and for status replies.
//!
//! Only the driver knows their meaning; other code adds them up and shows them.

use std::borrow::Cow;
use std::fmt;

/// Something that a driver chose for a channel, holds for it, or counted on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// Lower-case words joined by hyphens, with the unit of what has one: `ring-bytes`.
    pub name: &'static str,
    /// Its value.
    pub value: DetailValue,
}

/// The value of a [`Detail`], by what several channels have of it together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetailValue {
    /// A few words of this machine, such as a device's name; together, each that is different. Never words of the
    /// peer: they become labels of metrics, whose number is bounded.
    Text(Cow<'static, str>),
    /// A size or a rate that was chosen; together, the largest.
    Setting(u64),
    /// What is held at this moment; together, the sum.
    Holding(u64),
    /// What happened since the channel was opened; together, the sum.
    Count(u64),
    /// What happened since then to something that others use as well, such as a device; together, the most that a channel
    /// has seen.
    Shared(u64),
}

impl Detail {
    /// A [`DetailValue::Text`].
    pub fn text(name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        let value = DetailValue::Text(text.into());
        Self { name, value }
    }

    /// A [`DetailValue::Setting`].
    pub fn setting(name: &'static str, number: u64) -> Self {
        let value = DetailValue::Setting(number);
        Self { name, value }
    }

    /// A [`DetailValue::Holding`].
    pub fn holding(name: &'static str, amount: u64) -> Self {
        let value = DetailValue::Holding(amount);
        Self { name, value }
    }

    /// A [`DetailValue::Count`].
    pub fn count(name: &'static str, times: u64) -> Self {
        let value = DetailValue::Count(times);
        Self { name, value }
    }

    /// A [`DetailValue::Shared`].
    pub fn shared(name: &'static str, times: u64) -> Self {
        let value = DetailValue::Shared(times);
        Self { name, value }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.name)?;
        match &self.value {
            DetailValue::Text(text) => f.write_str(text),
            DetailValue::Setting(number)
            | DetailValue::Holding(number)
            | DetailValue::Count(number)
            | DetailValue::Shared(number) => write!(f, "{number}"),
        }
    }
}

/// The details of the channels of a transfer together, in the order in which they were first told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details(Vec<Detail>);

impl Details {
    /// Adds those of one channel. What it counted in `before`, when the transfer began to use it, belongs to
    /// others.
    pub fn add(&mut self, channel: &[Detail], before: &[Detail]) {
        for detail in channel {
            let earlier = before.iter().find(|earlier| earlier.name == detail.name);
            let detail = detail.since(earlier);
            let same = |known: &&mut Detail| {
                known.name == detail.name && known.value.sums_with(&detail.value)
            };
            if let Some(known) = self.0.iter_mut().find(same) {
                known.value.sum(&detail.value);
                continue;
            }
            let others = self.0.iter().rposition(|known| known.name == detail.name);
            let place = others.map_or(self.0.len(), |last| last + 1);
            self.0.insert(place, detail);
        }
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Detail] {
        &self.0
    }
}

impl Detail {
    fn since(&self, earlier: Option<&Self>) -> Self {
        match (&self.value, earlier.map(|earlier| &earlier.value)) {
            (DetailValue::Count(count), Some(DetailValue::Count(before))) => {
                Self::count(self.name, count.saturating_sub(*before))
            }
            (DetailValue::Shared(count), Some(DetailValue::Shared(before))) => {
                Self::shared(self.name, count.saturating_sub(*before))
            }
            _ => self.clone(),
        }
    }
}

impl DetailValue {
    /// Whether the two are told as one.
    fn sums_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn sum(&mut self, other: &Self) {
        match (self, other) {
            (Self::Setting(known), Self::Setting(other))
            | (Self::Shared(known), Self::Shared(other)) => *known = (*known).max(*other),
            (Self::Holding(known), Self::Holding(other))
            | (Self::Count(known), Self::Count(other)) => *known = known.saturating_add(*other),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_told_together() {
        let channel = |device: &'static str, ring, stalls| {
            [
                Detail::text("device", device),
                Detail::setting("ring-bytes", ring),
                Detail::holding("pinned-bytes", 2 * ring),
                Detail::count("stalls", stalls),
                Detail::shared("retries", 10 * stalls),
            ]
        };
        let mut details = Details::default();
        details.add(&channel("siw0", 10, 5), &channel("siw0", 10, 4));
        details.add(&channel("rxe0", 30, 2), &[]);
        details.add(&channel("siw0", 20, 0), &[]);
        let told: Vec<String> = details.as_slice().iter().map(Detail::to_string).collect();
        assert_eq!(
            told,
            [
                "device=siw0",
                "device=rxe0",
                "ring-bytes=30",
                "pinned-bytes=120",
                "stalls=3",
                "retries=20"
            ]
        );
    }
}
