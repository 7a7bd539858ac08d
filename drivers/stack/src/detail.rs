//! Named values that a driver reports about a channel, for the log, for metrics and for status replies.
//!
//! Other code combines and shows them without interpreting them.

use std::borrow::Cow;
use std::fmt;

use crate::static_name::static_name;

/// A named value of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// Lower-case words with hyphens, and the unit if there is one: `ring-bytes`.
    pub name: &'static str,
    /// Its value.
    pub value: DetailValue,
}

/// The value of a [`Detail`]. The kind defines how the values of several channels are combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetailValue {
    /// A short text of this machine, such as a device's name. Combined: each distinct text. Never a text from the peer: texts
    /// become labels of metrics, whose number must be bounded.
    Text(Cow<'static, str>),
    /// A chosen size or rate. Combined: the maximum.
    Setting(u64),
    /// An amount held at present. Combined: the sum.
    Holding(u64),
    /// A count of events since the channel was opened. Combined: the sum.
    Count(u64),
    /// A count of events of a shared resource, such as a device. Combined: the maximum.
    Shared(u64),
}

impl Detail {
    /// A detail that another machine reported. `None` if it has no valid name, or if the process has seen too many names.
    pub fn received(name: &str, value: DetailValue) -> Option<Self> {
        let name = static_name(name)?;
        Some(Self { name, value })
    }

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

/// The combined details of the channels of a transfer, in the order in which they were first reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details(Vec<Detail>);

impl Details {
    /// Adds the details of one channel. `before` are its details when the transfer began to use it; its counts are subtracted.
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

    /// The combined details of a transfer on another machine.
    pub fn received(details: impl IntoIterator<Item = Detail>) -> Self {
        let mut all = Self::default();
        for detail in details {
            all.add(&[detail], &[]);
        }
        all
    }

    /// The details.
    pub fn as_slice(&self) -> &[Detail] {
        &self.0
    }
}

impl Detail {
    /// The events that `details` counts and `known` does not, which has them afterwards. Other details, and counts without new
    /// events, are left out.
    pub fn new_events(details: &[Self], known: &mut Vec<Self>) -> Vec<Self> {
        let mut new = Vec::new();
        for detail in details {
            let same = |known: &&mut Self| {
                known.name == detail.name && known.value.sums_with(&detail.value)
            };
            let before = known.iter_mut().find(same);
            let since = detail.since(before.as_deref());
            if let DetailValue::Count(1..) | DetailValue::Shared(1..) = since.value {
                new.push(since);
                match before {
                    Some(before) => *before = detail.clone(),
                    None => known.push(detail.clone()),
                }
            }
        }
        new
    }

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
    /// Whether the two values can be combined.
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
    fn details_of_channels_are_combined() {
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

    #[test]
    fn details_of_another_machine_are_the_same() {
        let mut details = Details::default();
        let of = |device: &'static str| {
            [
                Detail::text("device", device),
                Detail::setting("ring-bytes", 7),
                Detail::holding("pinned-bytes", 8),
                Detail::count("stalls", 9),
                Detail::shared("retries", 10),
            ]
        };
        details.add(&of("siw0"), &[]);
        details.add(&of("rxe0"), &[]);
        let sent = details.as_slice().iter();
        let sent = sent.map(|detail| (detail.name.to_owned(), detail.value.clone()));
        let received = sent.filter_map(|(name, value)| Detail::received(&name, value));
        assert_eq!(Details::received(received), details);
        assert_eq!(Detail::received("two words", DetailValue::Count(1)), None);
    }

    #[test]
    fn events_are_new_once() {
        let mut known = Vec::new();
        let mut events = |stalls, retries| {
            let mut details = Details::default();
            let now = [
                Detail::setting("ring-bytes", 1),
                Detail::count("stalls", stalls),
                Detail::shared("retries", retries),
            ];
            details.add(&now, &[]);
            Detail::new_events(details.as_slice(), &mut known)
        };
        assert_eq!(events(0, 0), []);
        let both = [Detail::count("stalls", 2), Detail::shared("retries", 5)];
        assert_eq!(events(2, 5), both);
        // A count that is less for a moment is not counted again.
        assert_eq!(events(0, 5), []);
        assert_eq!(events(3, 5), [Detail::count("stalls", 1)]);
    }
}
