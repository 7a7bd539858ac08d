//! What a reload keeps of the configuration of a running server.

use super::configuration::Config;

/// The [`Reload`] of a word in the table of settings.
macro_rules! reload {
    (live) => {
        Reload::Live
    };
    (restart) => {
        Reload::Restart
    };
}

/// Sets fields of a new configuration to those of the running one. Returns whether the first of them differs.
macro_rules! keep {
    ($new:ident, $running:ident, $field:ident if $is_changed:ident) => {{
        let is_changed = $is_changed(&$new, $running);
        if is_changed {
            $new.$field.clone_from(&$running.$field);
        }
        is_changed
    }};
    ($new:ident, $running:ident, $($first:ident).+ $(, $($other:ident).+)*) => {{
        let is_changed = $new.$($first).+ != $running.$($first).+;
        $new.$($first).+.clone_from(&$running.$($first).+);
        $($new.$($other).+.clone_from(&$running.$($other).+);)*
        is_changed
    }};
}

/// A server that was started without GSI has no process that acts for local accounts.
pub(super) fn is_gsi_switched(new: &Config, running: &Config) -> bool {
    new.security.gsi.is_some() != running.security.gsi.is_some()
}

/// A server that was started without data nodes has files and data channels of its own, and the other way around.
pub(super) fn is_clustering_switched(new: &Config, running: &Config) -> bool {
    new.nodes.is_empty() != running.nodes.is_empty()
}

pub(super) use {keep, reload};
