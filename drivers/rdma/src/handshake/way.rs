//! The ways of connecting queue pairs, and the choice of one that both ends support.

use std::fmt;

/// A way of connecting queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// iWARP by programs at both ends: the data connection is the first queue pair.
    Soft = 1,
    /// iWARP with an adapter at one end at least: all queue pairs have connections of their own.
    Iwarp = 2,
    /// RoCE v2, by exchanged records.
    Roce = 4,
    /// InfiniBand, by exchanged records.
    InfiniBand = 8,
    /// A provider that replaces the choice, by exchanged records; both ends have the same one.
    Provided = 16,
}

/// The ways that an end supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ways(pub(super) u8);

impl Ways {
    pub(crate) fn with(self, way: Way) -> Self {
        Self(self.0 | way as u8)
    }

    pub(crate) fn has(self, way: Way) -> bool {
        self.0 & way as u8 != 0
    }

    /// The best way that both ends support: compatible adapters before programs.
    pub(crate) fn choose(self, other: Self) -> Option<Way> {
        let speaks_iwarp = |ways: Self| ways.has(Way::Soft) || ways.has(Way::Iwarp);
        let both = |way: Way| self.has(way) && other.has(way);
        if both(Way::Provided) {
            Some(Way::Provided)
        } else if both(Way::InfiniBand) {
            Some(Way::InfiniBand)
        } else if both(Way::Roce) {
            Some(Way::Roce)
        } else if !speaks_iwarp(self) || !speaks_iwarp(other) {
            None
        } else if self.has(Way::Iwarp) || other.has(Way::Iwarp) {
            Some(Way::Iwarp)
        } else {
            Some(Way::Soft)
        }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Way::Soft, "iWARP in user space"),
            (Way::Iwarp, "iWARP"),
            (Way::Roce, "RoCE"),
            (Way::InfiniBand, "InfiniBand"),
            (Way::Provided, "a provider of its own"),
        ];
        let names = names.iter().filter(|(way, _)| self.has(*way));
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        f.write_str(&names.join(" and "))
    }
}

impl Way {
    pub(super) fn decode(number: u8) -> Option<Self> {
        let all = [
            Self::Soft,
            Self::Iwarp,
            Self::Roce,
            Self::InfiniBand,
            Self::Provided,
        ];
        all.into_iter().find(|&way| way as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_common_way_is_chosen() {
        let ways = |ways: &[Way]| ways.iter().fold(Ways::default(), |all, &way| all.with(way));
        let soft = ways(&[Way::Soft]);
        let auto = ways(&[Way::Soft, Way::Roce]);
        let roce = ways(&[Way::Roce]);
        let iwarp = ways(&[Way::Iwarp]);
        assert_eq!(auto.choose(auto), Some(Way::Roce));
        assert_eq!(auto.choose(soft), Some(Way::Soft));
        assert_eq!(soft.choose(iwarp), Some(Way::Iwarp));
        assert_eq!(iwarp.choose(auto), Some(Way::Iwarp));
        assert_eq!(roce.choose(soft), None);
        assert_eq!(roce.choose(iwarp), None);
        let provided = ways(&[Way::Provided]);
        assert_eq!(provided.choose(provided), Some(Way::Provided));
        assert_eq!(provided.choose(auto), None);
        assert_eq!(auto.to_string(), "iWARP in user space and RoCE");
    }
}
