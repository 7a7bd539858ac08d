//! What is known of an option of globus-gridftp-server.

/// An option of globus-gridftp-server.
#[derive(Debug)]
pub(crate) struct GlobusOption {
    /// Its name in configuration files; options of the command line only have none.
    pub(crate) key: Option<&'static str>,
    /// Its names on the command line, without dashes, the long one first. A few options of files have none.
    pub(crate) flags: &'static [&'static str],
    /// The kind of its value.
    pub(crate) kind: Kind,
    /// What becomes of it.
    pub(crate) fate: Fate,
    /// A remark for the administrator: what differs, why there is no counterpart, what to do.
    pub(crate) remark: &'static str,
}

/// The kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `0` or `1` in files; on the command line the option alone, or with `no-` before it. With the default.
    Switch(bool),
    /// A whole number, perhaps with `K`, `M` or `G` after it.
    Number,
    /// Any text.
    Text,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// These of our settings take its place.
    Keys(&'static [&'static str]),
    /// Nothing is lost without it.
    Needless,
    /// It offers something to clients that this server does not have.
    Missing,
    /// It keeps clients from something, and this server cannot do that.
    Guard,
    /// It selects how the program runs.
    Mode,
}

/// A variable of the environment, which configuration files set with `$NAME value`.
#[derive(Debug)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: &'static str,
    /// What becomes of it.
    pub(crate) fate: Fate,
    /// A remark for the administrator.
    pub(crate) remark: &'static str,
}

impl GlobusOption {
    /// The name for messages: that of files, else that of the command line.
    pub(crate) fn name(&self) -> &'static str {
        self.key
            .or_else(|| self.flags.first().copied())
            .unwrap_or_default()
    }

    /// Whether `flag`, without dashes, is this option on the command line.
    pub(crate) fn is_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The names as the manual has them: `-p`, `-port`; and the name in files, where it differs.
    pub(super) fn spellings(&self) -> String {
        let mut names: Vec<String> = self.flags.iter().map(|flag| format!("`-{flag}`")).collect();
        let long = self.flags.first().map(|flag| flag.replace('-', "_"));
        if let Some(key) = self.key
            && long.as_deref() != Some(key)
        {
            names.push(format!("`{key}`"));
        }
        names.join(", ")
    }
}

/// An option of files and of the command line.
pub(super) const fn both(
    key: &'static str,
    flags: &'static [&'static str],
    kind: Kind,
    fate: Fate,
    remark: &'static str,
) -> GlobusOption {
    GlobusOption {
        key: Some(key),
        flags,
        kind,
        fate,
        remark,
    }
}

/// An option of the command line only.
pub(super) const fn flag(
    flags: &'static [&'static str],
    kind: Kind,
    fate: Fate,
    remark: &'static str,
) -> GlobusOption {
    GlobusOption {
        key: None,
        flags,
        kind,
        fate,
        remark,
    }
}

/// A variable.
pub(super) const fn variable(name: &'static str, fate: Fate, remark: &'static str) -> Variable {
    Variable { name, fate, remark }
}
