//! Which changes of settings a reload applies.

use std::time::Duration;

use clap::CommandFactory;

use super::*;
use crate::config::{CommandLine, Seconds};

fn anonymous() -> Settings {
    Settings {
        anonymous: Some(true),
        ..Settings::default()
    }
}

#[test]
fn a_reload_changes_what_it_can_and_names_the_rest() {
    let running = Config::resolve(anonymous()).0;
    let changed = Settings {
        movers: Some(3),
        idle_timeout: Some(Seconds(5)),
        ..anonymous()
    };
    let (config, kept) = Config::resolve(changed).0.reloaded(&running);
    assert_eq!(kept, ["movers"]);
    assert_eq!(config.limits.movers, running.limits.movers);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
}

#[test]
fn the_reference_tells_which_changes_need_a_restart() {
    let page = include_str!("../../../../docs/reference/options.md");
    for (name, reload) in Settings::ALL {
        let option = format!("| `--{}` |", name.replace('_', "-"));
        // Rules have no flag.
        let Some(row) = page.lines().find(|line| line.starts_with(&option)) else {
            assert!(["authorize", "limit"].contains(name), "{name}");
            continue;
        };
        let expected = match reload {
            Reload::Live => "| live |",
            Reload::Restart => "| restart |",
        };
        assert!(row.ends_with(expected), "{row}");
    }
}

#[test]
fn the_reference_has_the_headings_and_the_order_of_the_help() {
    let page = include_str!("../../../../docs/reference/options.md");
    let mut documented = Vec::new();
    let mut heading = "";
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        let option = line.strip_prefix("| `--");
        if let Some((name, _)) = option.and_then(|option| option.split_once('`')) {
            documented.push((heading.to_owned(), name.to_owned()));
        }
    }
    let command = CommandLine::command();
    let serve = command.find_subcommand("serve").expect("serve");
    let printed: Vec<_> = serve
        .get_arguments()
        .filter_map(|argument| {
            let heading = argument.get_help_heading()?.to_owned();
            Some((heading, argument.get_long()?.to_owned()))
        })
        .collect();
    assert_eq!(printed, documented);
}
