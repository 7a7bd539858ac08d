//! Wrong flags of `serve`, and of the commands that take its flags. clap ends at the first one. It is left out here and the rest is
//! parsed again, so that one run names all of them, together with the errors of the configuration file.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use super::examples::{example, flag_example};
use super::flags::{Command, CommandLine, ServeArguments};
use super::problem::WrongFlag;
use super::settings::Settings;
use super::similar::similar;

/// A flag of another program that this one stands in for.
#[derive(Debug)]
pub struct ForeignFlag {
    /// What takes its place.
    pub text: String,
    /// Another argument with its value follows.
    pub takes_value: bool,
}

/// A wrong flag, and the arguments that it consists of.
struct Found {
    flag: WrongFlag,
    first: usize,
    count: usize,
}

impl CommandLine {
    /// Parses the arguments of the program, of which the first is its name. Wrong flags of `serve` are in
    /// [`ServeArguments::wrong`]. `foreign` knows flags of another program by their names without dashes.
    ///
    /// # Errors
    ///
    /// Other errors, and requests for the help or the version.
    pub fn of(
        arguments: impl IntoIterator<Item = OsString>,
        foreign: &dyn Fn(&str) -> Option<ForeignFlag>,
    ) -> Result<Self, clap::Error> {
        let mut arguments: Vec<_> = arguments.into_iter().collect();
        let mut wrong = Vec::new();
        // Each turn leaves out an argument, so there is an end.
        loop {
            let error = match Self::try_parse_from(&arguments) {
                Ok(mut line) => {
                    line.note(wrong);
                    return Ok(line);
                }
                Err(error) => error,
            };
            let texts: Vec<_> = arguments
                .iter()
                .map(|text| text.to_string_lossy())
                .collect();
            let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
            let Some(found) = find(&texts, &error, foreign) else {
                return Err(error);
            };
            wrong.push(found.flag);
            arguments.drain(found.first..found.first + found.count);
        }
    }

    /// Commands that do not take the flags of `serve` have no such flag, so there are none here either.
    fn note(&mut self, wrong: Vec<WrongFlag>) {
        let serve: &mut ServeArguments = match &mut self.command {
            None => &mut self.serve,
            Some(Command::Serve(serve) | Command::Ssh(serve)) => serve,
            Some(Command::Node(node)) => &mut node.serve,
            Some(Command::Check(check)) => &mut check.serve,
            Some(Command::Doctor(doctor)) => &mut doctor.serve,
            Some(_) => return,
        };
        serve.wrong = wrong;
    }
}

/// Whether the command of these arguments takes the flags of `serve`.
fn takes_settings(arguments: &[&str]) -> bool {
    const COMMANDS: [&str; 5] = ["serve", "ssh", "node", "check", "doctor"];

    let command = arguments.get(1).unwrap_or(&"serve");
    command.starts_with('-') || COMMANDS.contains(command)
}

/// The flag that an error of clap is about, if leaving it out may help.
fn find(
    arguments: &[&str],
    error: &clap::Error,
    foreign: &dyn Fn(&str) -> Option<ForeignFlag>,
) -> Option<Found> {
    if !takes_settings(arguments) {
        return None;
    }
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // Without a command, a word may be one.
    if let Some(word) = context(ContextKind::InvalidSubcommand) {
        let is_command = CommandLine::command().find_subcommand(word).is_some();
        return if is_command {
            None
        } else {
            stray(arguments, word)
        };
    }
    // As `--max-connections <COUNT>`, or `--anonymous[=<BOOL>]`.
    let shown = context(ContextKind::InvalidArg)?;
    let name = shown.split([' ', '[', '=']).next()?;
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(found) = of_another(arguments, name, foreign)
    {
        return Some(found);
    }
    match error.kind() {
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            wrong_value(arguments, name, value, error)
        }
        ErrorKind::UnknownArgument if name.starts_with("--") => unknown(arguments, name),
        ErrorKind::UnknownArgument => stray(arguments, name),
        // Of a flag with itself.
        ErrorKind::ArgumentConflict if context(ContextKind::PriorArg) == Some(shown) => {
            let all = occurrences(arguments, name);
            let (first, count, _) = *all.last()?;
            let text = "this flag is given twice: delete one of them".to_owned();
            found(name, text, first, count)
        }
        _ => None,
    }
}

fn found(name: &str, text: String, first: usize, count: usize) -> Option<Found> {
    let key = name.trim_start_matches('-').to_owned();
    let flag = WrongFlag { key, text };
    Some(Found { flag, first, count })
}

/// Where a flag is: its index, the number of arguments with its value, and the value.
fn occurrences<'a>(arguments: &[&'a str], name: &str) -> Vec<(usize, usize, &'a str)> {
    let all = arguments
        .iter()
        .enumerate()
        .filter_map(|(index, argument)| {
            let rest = argument.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                Some(value) => Some((index, 1, value)),
                None if !rest.is_empty() => None,
                None => match arguments.get(index + 1) {
                    Some(value) if !value.starts_with("--") => Some((index, 2, *value)),
                    _ => Some((index, 1, "")),
                },
            }
        });
    all.collect()
}

/// A value that is none of its kind, or that is missing. It may be one of a list.
fn wrong_value(arguments: &[&str], name: &str, value: &str, error: &clap::Error) -> Option<Found> {
    let key = name.trim_start_matches('-');
    let (kind, like) = (example(key)?, flag_example(key)?);
    let all = occurrences(arguments, name);
    let mut all = all.into_iter();
    let (first, count, _) =
        all.find(|(_, _, given)| *given == value || given.split(',').any(|one| one == value))?;
    let own = error.source().map(ToString::to_string);
    let text = match own.filter(|_| kind.has_errors && !value.is_empty()) {
        Some(own) => own,
        None if value.is_empty() => format!("there is no value; write it like {like}"),
        None => {
            let kind = kind.kind.trim_end_matches(" in quotes");
            format!("'{value}' is not {kind}; write it like {like}")
        }
    };
    found(name, text, first, count)
}

/// A flag of another program, of which clap names the first letter only if it has one dash.
fn of_another(
    arguments: &[&str],
    name: &str,
    foreign: &dyn Fn(&str) -> Option<ForeignFlag>,
) -> Option<Found> {
    let written = |argument: &&str| -> Option<String> {
        let written = argument.split('=').next()?;
        let is_this = written == name || !name.starts_with("--") && written.starts_with(name);
        is_this.then(|| written.to_owned())
    };
    let mut all = arguments.iter().enumerate().skip(1);
    let (first, written) = all.find_map(|(index, argument)| Some((index, written(argument)?)))?;
    let flag = foreign(written.trim_start_matches('-'))?;
    let next = arguments.get(first + 1);
    let has_value = flag.takes_value
        && !arguments[first].contains('=')
        && next.is_some_and(|next| !next.starts_with('-'));
    let key = written.strip_prefix("--").unwrap_or(&written).to_owned();
    Some(Found {
        flag: WrongFlag {
            key,
            text: flag.text,
        },
        first,
        count: 1 + usize::from(has_value),
    })
}

fn unknown(arguments: &[&str], name: &str) -> Option<Found> {
    let (first, count, _) = *occurrences(arguments, name).first()?;
    let key = name.trim_start_matches('-');
    let hint = similar(key, Settings::keys());
    let text = format!("there is no such flag{hint}; `gridhaul-server serve --help` has all");
    found(name, text, first, count)
}

/// A word that is no flag, after a switch: `--anonymous true`.
fn stray(arguments: &[&str], word: &str) -> Option<Found> {
    let first = arguments.iter().position(|argument| *argument == word)?;
    let switch = arguments.get(first.checked_sub(1)?)?;
    let key = switch.strip_prefix("--")?;
    let like = flag_example(key)?;
    let text = format!(
        "'{word}' is no part of this flag, whose value follows an equals sign: write it like {like}"
    );
    found(switch, text, first, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<CommandLine, clap::Error> {
        let all = ["gridhaul-server"].iter().chain(arguments);
        CommandLine::of(all.map(OsString::from), &|name| {
            (name == "inetd").then(|| ForeignFlag {
                text: "of another".to_owned(),
                takes_value: false,
            })
        })
    }

    fn wrong(arguments: &[&str]) -> Vec<String> {
        let line = parsed(arguments).expect("the rest is right");
        let serve = match line.command {
            None => line.serve,
            Some(Command::Serve(serve)) => *serve,
            Some(Command::Check(check)) => check.serve,
            Some(_) => panic!("another command"),
        };
        assert_eq!(serve.settings.root, Some("/srv".into()), "{arguments:?}");
        let problems = serve.wrong.iter().map(WrongFlag::problem);
        problems.map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn all_wrong_flags_are_found_and_the_others_count() {
        let flags = [
            "--max-connections",
            "many",
            "--idle-timeout=soon",
            "--root",
            "/srv",
            "--anonymus",
            "--movers",
            "--data-hosts",
            "any,here",
            "--anonymous",
            "true",
            "-inetd",
            "--gsi=yes",
            "--user",
            "a",
            "--user",
            "b",
        ];
        let expected = [
            "--max-connections: 'many' is not a whole number; write it like --max-connections=100",
            "--idle-timeout: 'soon' is not a time, like 600",
            "--anonymus: there is no such flag (did you mean 'anonymous'?)",
            "--movers: there is no value; write it like --movers=100",
            "--data-hosts: 'here' is not 'any', an address",
            "--anonymous: 'true' is no part of this flag",
            "-inetd: of another",
            "--gsi: 'yes' is not true or false; write it like --gsi=true",
            "--user: this flag is given twice",
        ];
        for command in [None, Some("serve"), Some("check")] {
            let arguments: Vec<&str> = command.into_iter().chain(flags).collect();
            let found = wrong(&arguments);
            for words in expected {
                let is_there = found.iter().any(|text| text.starts_with(words));
                assert!(is_there, "{command:?}: {words}: {found:#?}");
            }
            assert_eq!(found.len(), expected.len(), "{command:?}: {found:#?}");
        }
    }

    #[test]
    fn other_errors_are_those_of_clap() {
        for (arguments, kind) in [
            (&["chek"][..], ErrorKind::InvalidSubcommand),
            (&["--anonymous", "check"], ErrorKind::ArgumentConflict),
            (&["status", "--socet", "a"], ErrorKind::UnknownArgument),
            (&["import", "--nonsense"], ErrorKind::UnknownArgument),
            (&["serve", "--nonsense", "--help"], ErrorKind::DisplayHelp),
            (&["serve", "word"], ErrorKind::UnknownArgument),
            (&["doctor", "--rtt", "soon"], ErrorKind::ValueValidation),
        ] {
            let error = parsed(arguments).expect_err("wrong");
            assert_eq!(error.kind(), kind, "{arguments:?}");
        }
    }
}
