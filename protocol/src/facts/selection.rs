//! The facts that a client selects (`OPTS MLST`, RFC 3659 7.9).

use std::fmt;

/// A fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fact {
    /// The type of the file.
    Type,
    /// The time of the last change of the content.
    Modify,
    /// The encoding of the name.
    Charset,
    /// The size in bytes.
    Size,
    /// The user's rights.
    Perm,
    /// The permission bits.
    UnixMode,
    /// The name of the owner.
    UnixOwner,
    /// The number of the owner.
    UnixUid,
    /// The name of the group.
    UnixGroup,
    /// The number of the group.
    UnixGid,
    /// The identity of the file.
    Unique,
    /// The target of a symbolic link.
    UnixSlink,
    /// The number of entries.
    Count,
}

impl Fact {
    /// All facts, in the order in which globus-gridftp-server 13.24 writes them.
    pub const ALL: [Self; 13] = [
        Self::Type,
        Self::Modify,
        Self::Charset,
        Self::Size,
        Self::Perm,
        Self::UnixMode,
        Self::UnixOwner,
        Self::UnixUid,
        Self::UnixGroup,
        Self::UnixGid,
        Self::Unique,
        Self::UnixSlink,
        Self::Count,
    ];

    /// The name on the wire; clients may write it in any case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Type => "Type",
            Self::Modify => "Modify",
            Self::Charset => "Charset",
            Self::Size => "Size",
            Self::Perm => "Perm",
            Self::UnixMode => "UNIX.mode",
            Self::UnixOwner => "UNIX.owner",
            Self::UnixUid => "UNIX.uid",
            Self::UnixGroup => "UNIX.group",
            Self::UnixGid => "UNIX.gid",
            Self::Unique => "Unique",
            Self::UnixSlink => "UNIX.slink",
            Self::Count => "X.count",
        }
    }

    /// The fact of that name, in any case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let is_it = |fact: &Self| fact.name().as_bytes().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(is_it)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of facts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FactSelection(u16);

impl FactSelection {
    /// No fact at all: lines have names only.
    pub const NONE: Self = Self(0);

    /// Selects the facts with these names. Unknown names are ignored (RFC 3659 7.9).
    pub fn from_names<N: AsRef<[u8]>>(names: impl IntoIterator<Item = N>) -> Self {
        let facts = names.into_iter();
        facts
            .filter_map(|name| Fact::from_name(name.as_ref()))
            .collect()
    }

    /// Whether the fact is selected.
    pub fn has(self, fact: Fact) -> bool {
        self.0 & fact.bit() != 0
    }

    /// The selected facts, in the order in which they are written.
    pub fn iter(self) -> impl Iterator<Item = Fact> {
        Fact::ALL.into_iter().filter(move |&fact| self.has(fact))
    }
}

/// The default of a session: all except `Charset`, which is the same for every name, and `X.count`, which requires reading
/// directories. globus-gridftp-server 13.24 marks the same facts in `FEAT`.
impl Default for FactSelection {
    fn default() -> Self {
        let costs = [Fact::Charset, Fact::Count];
        let facts = Fact::ALL.into_iter();
        facts.filter(|fact| !costs.contains(fact)).collect()
    }
}

impl FromIterator<Fact> for FactSelection {
    fn from_iter<I: IntoIterator<Item = Fact>>(facts: I) -> Self {
        let bits = facts.into_iter().map(Fact::bit);
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

/// `Type;Size;`, as in `OPTS MLST` and the reply to it.
impl fmt::Display for FactSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter()
            .try_for_each(|fact| write!(f, "{};", fact.name()))
    }
}

impl fmt::Debug for FactSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FactSelection({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_new_session_are_those_of_globus() {
        assert_eq!(
            FactSelection::default().to_string(),
            "Type;Modify;Size;Perm;UNIX.mode;UNIX.owner;UNIX.uid;UNIX.group;UNIX.gid;Unique;UNIX.slink;"
        );
    }

    #[test]
    fn facts_are_selected_in_any_case_and_order() {
        let selection =
            FactSelection::from_names(["size", "TYPE", "unix.MODE", "x.nothing", "Size"]);
        assert_eq!(selection.to_string(), "Type;Size;UNIX.mode;");
        assert!(selection.has(Fact::Size) && !selection.has(Fact::Modify));
        assert_eq!(FactSelection::from_names(["media"]), FactSelection::NONE);
    }

    #[test]
    fn every_fact_has_a_bit_of_its_own() {
        for fact in Fact::ALL {
            let selection: FactSelection = [fact].into_iter().collect();
            assert_eq!(selection.iter().collect::<Vec<_>>(), [fact]);
            assert_eq!(Fact::from_name(fact.name().as_bytes()), Some(fact));
        }
    }
}
