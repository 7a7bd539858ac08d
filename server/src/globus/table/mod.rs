//! Every option of globus-gridftp-server 13.24: those of its manual, and those that only its source has
//! (`globus_i_gfs_config.c`). `gridhaul-server import`, the command line of [`super::arguments`] and the tables in
//! `docs/migration.md` come from it.

mod access;
mod program;
mod service;
mod variables;

use super::option::{Fate, GlobusOption, Kind, Variable};

pub(crate) use variables::VARIABLES;

/// The options, in the sections of the manual.
pub(crate) const SECTIONS: &[(&str, &[GlobusOption])] = &[
    ("Modes of operation", program::MODES),
    ("Authentication and authorization", access::ACCESS),
    ("Sharing", access::SHARING),
    ("Log", service::LOG),
    ("Striping and data nodes", service::STRIPES),
    ("Disk", service::DISK),
    ("Network", service::NETWORK),
    ("Messages", service::MESSAGES),
    ("Modules", service::MODULES),
    ("Other", program::OTHER),
];

/// All options.
pub(crate) fn options() -> impl Iterator<Item = &'static GlobusOption> {
    SECTIONS.iter().flat_map(|(_, options)| options.iter())
}

/// The option with this name in files.
pub(crate) fn by_key(key: &str) -> Option<&'static GlobusOption> {
    options().find(|option| option.key == Some(key))
}

/// The option with this name on the command line, without dashes.
pub(crate) fn by_flag(flag: &str) -> Option<&'static GlobusOption> {
    options().find(|option| option.is_flag(flag))
}

/// The remark on an option, as plain text: without links, and with the remark that "the same" repeats.
pub(crate) fn remark(option: &GlobusOption) -> String {
    let before = options().take_while(|other| other.name() != option.name());
    let first = before
        .filter(|other| !other.remark.starts_with("the same"))
        .last();
    let repeated = option.remark.strip_prefix("the same").zip(first);
    plain(&match repeated {
        Some((rest, first)) => format!("{}{rest}", first.remark),
        None => option.remark.to_owned(),
    })
}

/// Markdown without marks, and links without their targets.
pub(crate) fn plain(markdown: &str) -> String {
    let text = markdown.replace(['*', '`'], "");
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap_or_default();
        plain.push_str(&rest.replace('[', ""));
    }
    plain
}

/// The variable with this name.
pub(crate) fn variable(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// The tables of `docs/migration.md`, in Markdown.
pub(crate) fn markdown() -> String {
    let mut text = String::new();
    for (section, options) in SECTIONS {
        text.push_str(&format!("### {section}\n\n{HEAD}"));
        for option in *options {
            text.push_str(&row(&option.spellings(), option.fate, option.remark));
        }
        text.push('\n');
    }
    text.push_str(&format!("### Variables of the environment\n\n{HEAD}"));
    for variable in VARIABLES {
        let name = format!("`{}`", variable.name);
        text.push_str(&row(&name, variable.fate, variable.remark));
    }
    text
}

const HEAD: &str = "| globus-gridftp-server | gridhaul | remark |\n|---|---|---|\n";

fn row(names: &str, fate: Fate, remark: &str) -> String {
    let keys = match fate {
        Fate::Keys(keys) => {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            keys.join(", ")
        }
        Fate::Needless | Fate::Mode => String::new(),
        Fate::Missing => "*missing*".to_owned(),
        Fate::Guard => "***attention***".to_owned(),
    };
    format!("| {names} | {keys} | {remark} |\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn names_are_unique_and_our_keys_exist() {
        let mut names = BTreeSet::new();
        for option in options() {
            let all = option.key.iter().map(|key| format!("key {key}"));
            for name in all.chain(option.flags.iter().map(|flag| format!("flag {flag}"))) {
                assert!(names.insert(name.clone()), "{name} is there twice");
            }
            let needs_remark = !matches!(option.fate, Fate::Keys(_));
            assert!(
                !needs_remark || !option.remark.is_empty(),
                "{}",
                option.name()
            );
        }
        assert!(names.len() > 200, "{}", names.len());
        let fates = options().map(|option| option.fate);
        for fate in fates.chain(VARIABLES.iter().map(|variable| variable.fate)) {
            let Fate::Keys(keys) = fate else { continue };
            for key in keys {
                let field = key.replace('-', "_");
                let is_known = Settings::ALL.iter().any(|(known, _)| *known == field);
                assert!(is_known || *key == "authorize", "{key} is no setting");
            }
        }
    }

    #[test]
    fn the_page_about_migration_has_this_table() {
        let page = include_str!("../../../../docs/migration.md");
        assert!(
            page.contains(&markdown()),
            "docs/migration.md: replace the tables by what `gridhaul-server import --options` prints"
        );
    }
}
