//! Options of globus-url-copy that send a `SITE` command after the login: `-fsstack`, `-pipe` and `-aa`, and for one end `-src-fsstack` and
//! `-dst-fsstack`, `-src-pipe` and `-dst-pipe`, `-saa` and `-daa`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;

use gridhaul_protocol::command::{Assertion, SiteCommand, StackRequest, Text};

use super::urls;

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
    ends: Ends,
    command: SiteCommand,
}

/// Why an option cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SiteError {
    #[error("{0}: the value has characters that FTP cannot send")]
    Unsendable(String),
    #[error("{0}: one of #$^*!|%&()'{{}} separates the words of the command, as in cat#/etc/hosts")]
    Separator(String),
    #[error("{option} {file}: {error}")]
    File {
        option: String,
        file: String,
        error: io::Error,
    },
}

/// Reads an option and its value; errors name it as `option`. `None` if the option is not one of these.
///
/// # Errors
///
/// When a file cannot be read, or the value cannot be sent.
pub(super) fn read(
    name: &str,
    option: &str,
    value: &mut dyn FnMut() -> Option<OsString>,
) -> Option<Result<AfterLogin, SiteError>> {
    let ends = match name {
        "fsstack" | "file-system-stack" | "aa" | "authz-assert" => Ends::Both,
        "src-fsstack"
        | "source-file-system-stack"
        | "src-pipe"
        | "SP"
        | "saa"
        | "src-authz-assert" => Ends::Source,
        "dst-fsstack"
        | "dest-file-system-stack"
        | "dst-pipe"
        | "DP"
        | "daa"
        | "dst-authz-assert" => Ends::Destination,
        _ => return None,
    };
    let value = value()?;
    Some(command(name, option, &value).map(|command| AfterLogin { ends, command }))
}

fn command(name: &str, option: &str, value: &OsStr) -> Result<SiteCommand, SiteError> {
    let unsendable = || SiteError::Unsendable(option.to_owned());
    let text = |value: &str| Text::new(value.to_owned()).ok_or_else(unsendable);
    let stack = |drivers: &str| {
        let drivers = text(drivers)?;
        Ok(SiteCommand::SetDiskStack(StackRequest::Drivers(drivers)))
    };
    match name {
        name if name.ends_with("stack") => stack(&urls::text(value)),
        "src-pipe" | "SP" => stack(&popen(option, &urls::text(value))?),
        "dst-pipe" | "DP" => stack(&format!("{},ordering", popen(option, &urls::text(value))?)),
        _ => {
            let read = fs::read_to_string(value).map_err(|error| SiteError::File {
                option: option.to_owned(),
                file: value.display().to_string(),
                error,
            })?;
            Ok(SiteCommand::AuthzAssert(Assertion(text(read.trim_end())?)))
        }
    }
}

/// The driver that starts a program with these words. Its option begins with the character that separates them: of these characters the first
/// one that occurs, as observed from globus-url-copy 10.12.
fn popen(option: &str, words: &str) -> Result<String, SiteError> {
    const SEPARATORS: &str = "#$^*!|%&()'{}";
    let separator = SEPARATORS.chars().find(|one| words.contains(*one));
    let separator = separator.ok_or_else(|| SiteError::Separator(option.to_owned()))?;
    Ok(format!("popen:argv={separator}{words}"))
}

/// The commands for sources and those for destinations.
pub(super) fn commands(all: &[AfterLogin]) -> [Vec<SiteCommand>; 2] {
    [Ends::Source, Ends::Destination].map(|end| {
        let all = all.iter();
        let sent = all.filter(|one| one.ends == Ends::Both || one.ends == end);
        sent.map(|one| one.command.clone()).collect()
    })
}

impl AfterLogin {
    pub(super) fn ends(&self) -> Ends {
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::command::Command;

    use super::*;

    fn sent(name: &str, value: &str) -> Result<[Vec<String>; 2], SiteError> {
        let read = read(name, "-option", &mut || Some(value.into())).expect("an option")?;
        Ok(commands(&[read]).map(|commands| {
            let lines = commands.into_iter().map(Command::Site);
            lines.map(|line| line.to_string()).collect()
        }))
    }

    #[test]
    fn options_become_site_commands_of_their_end() {
        let stack = "SITE SETDISKSTACK file".to_owned();
        let both = [vec![stack.clone()], vec![stack.clone()]];
        assert_eq!(sent("fsstack", "file").expect("sent"), both);
        let pipe = "SITE SETDISKSTACK popen:argv=#cat#/etc/x".to_owned();
        let source = [vec![pipe], vec![]];
        assert_eq!(sent("src-pipe", "cat#/etc/x").expect("sent"), source);
        sent("src-pipe", "cat /etc/x").expect_err("no separator");
        let destination = [vec![], vec![stack]];
        assert_eq!(sent("dst-fsstack", "file").expect("sent"), destination);
        let long = sent("dest-file-system-stack", "file").expect("sent");
        assert_eq!(long, destination);
        sent("fsstack", "a\r\nDELE x").expect_err("two commands");
        sent("aa", "/nonexistent").expect_err("no file");
    }
}
