//! The command line, with what the configuration files add to it.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use super::read;
use crate::location::{Location, as_text};
use crate::program::arguments::{Arguments, Command, HostOptions, is_login};
use crate::program::output::warn;

/// Commands that use no options of copies, or have those of another program.
const WITHOUT: [&str; 3] = ["config", "guc", "proxy"];

/// Options that copies of standard input and output do not have.
const OF_FILES: [&str; 4] = ["create-dirs", "mode", "parallel", "times"];

/// Options that `chmod` and `rm` have with `--recursive` only, for the listings of directories.
const OF_LISTINGS: [&str; 4] = ["dcau", "protect", "stack", "stall-timeout"];

/// The command of this process. `None` after an error, which is printed.
pub(in crate::program) fn command() -> Option<Command> {
    let words: Vec<OsString> = env::args_os().collect();
    let mut all = Arguments::command();
    // As in Parser::parse, an error ends the process here.
    let matches = all.try_get_matches_from_mut(&words);
    let matches = matches.unwrap_or_else(|error| error.exit());
    let parsed = |matches: &ArgMatches| match Arguments::from_arg_matches(matches) {
        Ok(arguments) => Some(arguments.command),
        Err(error) => {
            warn(error);
            None
        }
    };
    let Some((name, matches_of)) = matches.subcommand() else {
        return parsed(&matches);
    };
    if WITHOUT.contains(&name) {
        return parsed(&matches);
    }
    let profile = match read() {
        Ok(profile) if profile.sections.is_empty() => return parsed(&matches),
        Ok(profile) => profile,
        Err(error) => {
            warn(error);
            return None;
        }
    };
    let of_name = all.find_subcommand(name)?;
    let has_stream = has_stream(name, matches_of);
    let lists = lists(of_name, matches_of);
    let has = |key: &str| {
        (!has_stream || !OF_FILES.contains(&key))
            && (lists || !OF_LISTINGS.contains(&key))
            // A benchmark tries several.
            && (name != "bench" || key != "parallel")
    };
    let is_wanted = |key: &str| !is_login(key) && has(key);
    let hosts = hosts(of_name, matches_of);
    let added = profile.words(of_name, matches_of, &hosts, is_wanted);
    let added = match added {
        Ok(added) => added,
        Err(error) => {
            warn(error);
            return None;
        }
    };
    let options = HostOptions::new(Arc::new(profile), of_name, matches_of);
    // The program and the name of the command come first.
    let merged = words.iter().take(2).cloned().chain(added);
    let merged: Vec<OsString> = merged.chain(words.iter().skip(2).cloned()).collect();
    let mut command = parsed(&Arguments::command().get_matches_from(merged))?;
    if let Some(login) = command.login_mut() {
        login.hosts = Some(options);
    }
    Some(command)
}

/// Whether a command copies standard input or to standard output.
fn has_stream(name: &str, matches: &ArgMatches) -> bool {
    let locations = matches.try_get_raw("locations").ok().flatten();
    name == "cat" || locations.into_iter().flatten().any(|word| word == "-")
}

/// Whether a command may list directories: `chmod` and `rm` do so with `--recursive`.
fn lists(command: &clap::Command, matches: &ArgMatches) -> bool {
    !matches!(command.get_name(), "chmod" | "rm") || matches.get_flag("recursive")
}

/// The hosts of the URLs of a command.
fn hosts(command: &clap::Command, matches: &ArgMatches) -> Vec<String> {
    let mut hosts = Vec::new();
    for argument in command.get_positionals() {
        let id = argument.get_id().as_str();
        let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
        for value in values {
            if let Ok(Location::Remote(url)) = Location::parse(&as_text(value.as_bytes()))
                && !hosts.contains(&url.server.host)
            {
                hosts.push(url.server.host);
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_without_configuration_exist() {
        let all = Arguments::command();
        for name in WITHOUT {
            assert!(all.find_subcommand(name).is_some(), "{name}");
        }
    }
}
