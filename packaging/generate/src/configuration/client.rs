//! The configuration file of the client for all users. It sets nothing: each key is a comment, with its default, or with an
//! example if the help describes the default in words.

use clap::Arg;
use gridhaul_client::program::{command_line, configuration_keys};

use super::help;

/// The beginning of the file.
const HEAD: &str = "\
# Defaults for the options of gridhaul copy, for all users of this machine. The other commands use
# those that they have. The file ~/.config/gridhaul/config.toml of a user has the same form. It wins
# over this one, and the command line over both. The command
#
#   gridhaul config gsiftp://HOST
#
# shows what holds for a server, and where it is set.
#
# A line that begins with # and a key shows the default of this key, or an example where the text
# above the line describes the default in words or names none.

[defaults]
";

/// The end of the file.
const TAIL: &str = "
# Settings for some servers; a later table wins over an earlier one. A user, and the name of a file
# with a password, belong only here. For example:
#
# [[host]]
# match = [\"*.example.org\", \"dtn.example.net\"]
# parallel = 8
# stack = \"rdma\"
#
# [[host]]
# match = \"ftp.example.com\"
# user = \"ada\"
# password-file = \"~/.config/gridhaul/example-password\"
";

/// Users and passwords are for one server, so that `[defaults]` may not have them.
const OF_ONE_HOST: [&str; 2] = ["password-file", "user"];

/// Values for keys whose default is described in words, or is the absence of a value.
const EXAMPLES: &[(&str, &str)] = &[
    ("block-size", "1M"),
    ("ca", "/etc/ssl/certs/ca-certificates.crt"),
    ("checksum", "CRC32C"),
    ("dcau", "self"),
    ("proxy", "~/proxies/example"),
    ("stack", "tcp:cc=bbr"),
    ("subject", "/DC=org/DC=example/CN=dtn.example.org"),
    ("trust", "/etc/grid-security/certificates"),
];

/// The text of the file.
///
/// # Panics
///
/// When an option has neither a default nor an example: add one to [`EXAMPLES`].
pub(super) fn text() -> String {
    let command = command_line();
    let copy = command.find_subcommand("copy").expect("a command");
    let keys: Vec<&str> = configuration_keys().collect();
    let mut text = HEAD.to_owned();
    for argument in copy.get_arguments() {
        let key = argument.get_long().filter(|key| keys.contains(key));
        if let Some(key) = key.filter(|key| !OF_ONE_HOST.contains(key)) {
            let value = value(argument, key);
            text.push_str(&format!("\n{}#{key} = {value}\n", help(argument)));
        }
    }
    text.push_str(TAIL);
    text
}

/// The default as in the file, or an example.
fn value(argument: &Arg, key: &str) -> String {
    if !argument.get_action().takes_values() {
        return "false".to_owned();
    }
    let example = EXAMPLES.iter().find(|(name, _)| *name == key);
    let default = argument.get_default_values().first();
    let text = match (example, default.and_then(|value| value.to_str())) {
        (Some((_, example)), _) => example,
        (None, Some(default)) => default,
        (None, None) => panic!("--{key} has no default: add an example"),
    };
    match text.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::configuration::{WIDTH, uncommented};

    #[test]
    fn the_file_sets_nothing() {
        let table: toml::Table = toml::from_str(&text()).expect("TOML");
        let defaults = table["defaults"].as_table().expect("a table");
        assert!(defaults.is_empty() && table.len() == 1, "{table}");
        assert!(text().lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn without_comments_it_has_every_key_with_a_value_that_the_option_takes() {
        let copy = command_line().find_subcommand("copy").cloned();
        let copy = copy.expect("a command");
        let table: toml::Table = toml::from_str(&uncommented(&text())).expect("TOML");
        let defaults = table["defaults"].as_table().expect("a table");
        let written: BTreeSet<&str> = defaults.keys().map(String::as_str).collect();
        let keys = configuration_keys().filter(|key| !OF_ONE_HOST.contains(key));
        assert_eq!(written, keys.collect());
        for (key, value) in defaults {
            let word = match value {
                toml::Value::Boolean(_) => format!("--{key}"),
                toml::Value::String(text) => format!("--{key}={text}"),
                other => format!("--{key}={other}"),
            };
            let words = ["copy", &word, "a", "b"];
            let parsed = copy.clone().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{word}: {parsed:?}");
        }
    }

    #[test]
    fn the_example_of_hosts_has_known_keys() {
        let lines = TAIL.lines().filter_map(|line| line.strip_prefix("# "));
        let lines: Vec<&str> = lines.skip_while(|line| *line != "[[host]]").collect();
        let table: toml::Table = toml::from_str(&lines.join("\n")).expect("TOML");
        let hosts = table["host"].as_array().expect("tables");
        assert_eq!(hosts.len(), 2);
        for key in hosts
            .iter()
            .flat_map(|host| host.as_table().expect("a table").keys())
        {
            assert!(
                key == "match" || configuration_keys().any(|known| known == key),
                "{key}"
            );
        }
    }

    #[test]
    fn a_comment_shows_the_default_where_it_is_a_value() {
        let text = text();
        for line in ["#concurrency = 4", "#mode = \"auto\"", "#times = false"] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }
}
