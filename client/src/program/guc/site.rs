//! Options of globus-url-copy that send a `SITE` command after the login: `-fsstack`, `-src-pipe`, `-aa` and their relatives.

use std::fs;
use std::io;

use gridhaul_protocol::command::{Assertion, SiteCommand, StackRequest, Text};

/// The ends that a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Both,
    Source,
    Destination,
}

/// What an option sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AfterLogin {
    option: String,
    ends: Ends,
    command: SiteCommand,
}

/// Why an option cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SiteError {
    #[error("{0} is for one end of a copy between two servers, which this program does not have")]
    OneEnd(String),
    #[error("{0}: the value has characters that FTP cannot send")]
    Unsendable(String),
    #[error("{option} {file}: {error}")]
    File {
        option: String,
        file: String,
        error: io::Error,
    },
}

/// Reads an option and its value. `None` if the option is not one of these.
///
/// # Errors
///
/// When a file cannot be read, or the value cannot be sent.
pub(super) fn read(
    name: &str,
    value: &mut dyn FnMut() -> Option<String>,
) -> Option<Result<AfterLogin, SiteError>> {
    let ends = match name {
        "fsstack" | "aa" | "authz-assert" => Ends::Both,
        "src-fsstack" | "src-pipe" | "SP" | "saa" | "src-authz-assert" => Ends::Source,
        "dst-fsstack" | "dst-pipe" | "DP" | "daa" | "dst-authz-assert" => Ends::Destination,
        _ => return None,
    };
    let value = value()?;
    let option = format!("-{name}");
    Some(command(name, &option, &value).map(|command| AfterLogin {
        option,
        ends,
        command,
    }))
}

fn command(name: &str, option: &str, value: &str) -> Result<SiteCommand, SiteError> {
    let unsendable = || SiteError::Unsendable(option.to_owned());
    let text = |value: &str| Text::new(value.to_owned()).ok_or_else(unsendable);
    let stack = |drivers: &str| {
        let drivers = text(drivers)?;
        Ok(SiteCommand::SetDiskStack(StackRequest::Drivers(drivers)))
    };
    match name {
        "fsstack" | "src-fsstack" | "dst-fsstack" => stack(value),
        "src-pipe" | "SP" => stack(&format!("popen:argv={value}")),
        "dst-pipe" | "DP" => stack(&format!("popen:argv={value},ordering")),
        _ => {
            let read = fs::read_to_string(value).map_err(|error| SiteError::File {
                option: option.to_owned(),
                file: value.to_owned(),
                error,
            })?;
            Ok(SiteCommand::AuthzAssert(Assertion(text(read.trim_end())?)))
        }
    }
}

/// The commands for the servers of a copy of which these ends are servers. Sessions do not know their end, so a command for one
/// end needs a copy with one server.
///
/// # Errors
///
/// When a command is for one of two servers.
pub(super) fn commands(
    all: &[AfterLogin],
    [source, destination]: [bool; 2],
) -> Result<Vec<SiteCommand>, SiteError> {
    let mut commands = Vec::new();
    for one in all {
        let is_sent = match one.ends {
            Ends::Both => true,
            _ if source && destination => return Err(SiteError::OneEnd(one.option.clone())),
            Ends::Source => source,
            Ends::Destination => destination,
        };
        if is_sent {
            commands.push(one.command.clone());
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::command::Command;

    use super::*;

    fn sent(name: &str, value: &str, servers: [bool; 2]) -> Result<Vec<String>, SiteError> {
        let read = read(name, &mut || Some(value.to_owned())).expect("an option")?;
        let commands = commands(&[read], servers)?.into_iter();
        let lines = commands.map(Command::Site);
        Ok(lines.map(|line| line.to_string()).collect())
    }

    #[test]
    fn options_become_site_commands_of_their_end() {
        let stack = "SITE SETDISKSTACK file";
        assert_eq!(
            sent("fsstack", "file", [true, true]).expect("sent"),
            [stack]
        );
        let pipe = "SITE SETDISKSTACK popen:argv=#cat#/etc/x";
        let get = [true, false];
        assert_eq!(sent("src-pipe", "#cat#/etc/x", get).expect("sent"), [pipe]);
        assert!(sent("dst-fsstack", "file", get).expect("none").is_empty());
        let error = sent("dst-fsstack", "file", [true, true]).expect_err("two servers");
        assert!(matches!(error, SiteError::OneEnd(option) if option == "-dst-fsstack"));
        sent("fsstack", "a\r\nDELE x", get).expect_err("two commands");
        sent("aa", "/nonexistent", get).expect_err("no file");
    }
}
