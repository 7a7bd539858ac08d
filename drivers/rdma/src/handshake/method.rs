//! The methods of connecting queue pairs, and the choice of one that both ends support.

use std::fmt;

/// A method of connecting queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
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

/// The methods that an end supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Methods(pub(super) u8);

impl Methods {
    pub(crate) fn with(self, method: Method) -> Self {
        Self(self.0 | method as u8)
    }

    pub(crate) fn has(self, method: Method) -> bool {
        self.0 & method as u8 != 0
    }

    /// The best method that both ends support: compatible adapters before programs.
    pub(crate) fn choose(self, other: Self) -> Option<Method> {
        let speaks_iwarp = |methods: Self| methods.has(Method::Soft) || methods.has(Method::Iwarp);
        let both = |method: Method| self.has(method) && other.has(method);
        if both(Method::Provided) {
            Some(Method::Provided)
        } else if both(Method::InfiniBand) {
            Some(Method::InfiniBand)
        } else if both(Method::Roce) {
            Some(Method::Roce)
        } else if !speaks_iwarp(self) || !speaks_iwarp(other) {
            None
        } else if self.has(Method::Iwarp) || other.has(Method::Iwarp) {
            Some(Method::Iwarp)
        } else {
            Some(Method::Soft)
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Method::Soft, "iWARP in user space"),
            (Method::Iwarp, "iWARP"),
            (Method::Roce, "RoCE"),
            (Method::InfiniBand, "InfiniBand"),
            (Method::Provided, "a provider of its own"),
        ];
        let names = names.iter().filter(|(method, _)| self.has(*method));
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        f.write_str(&names.join(" and "))
    }
}

impl Method {
    /// Whether a channel may use several adapters at once.
    pub(crate) fn has_rails(self) -> bool {
        matches!(self, Self::Roce | Self::InfiniBand)
    }

    pub(super) fn decode(number: u8) -> Option<Self> {
        let all = [
            Self::Soft,
            Self::Iwarp,
            Self::Roce,
            Self::InfiniBand,
            Self::Provided,
        ];
        all.into_iter().find(|&method| method as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_common_way_is_chosen() {
        let methods = |methods: &[Method]| {
            methods
                .iter()
                .fold(Methods::default(), |all, &method| all.with(method))
        };
        let soft = methods(&[Method::Soft]);
        let auto = methods(&[Method::Soft, Method::Roce]);
        let roce = methods(&[Method::Roce]);
        let iwarp = methods(&[Method::Iwarp]);
        assert_eq!(auto.choose(auto), Some(Method::Roce));
        assert_eq!(auto.choose(soft), Some(Method::Soft));
        assert_eq!(soft.choose(iwarp), Some(Method::Iwarp));
        assert_eq!(iwarp.choose(auto), Some(Method::Iwarp));
        assert_eq!(roce.choose(soft), None);
        assert_eq!(roce.choose(iwarp), None);
        let provided = methods(&[Method::Provided]);
        assert_eq!(provided.choose(provided), Some(Method::Provided));
        assert_eq!(provided.choose(auto), None);
        assert_eq!(auto.to_string(), "iWARP in user space and RoCE");
    }
}
