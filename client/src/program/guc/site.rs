//! Options of globus-url-copy that send a `SITE` command after the login: `-fsstack`, `-pipe` and `-aa`, and for one end `-src-fsstack` and
//! `-dst-fsstack`, `-src-pipe` and `-dst-pipe`, `-saa` and `-daa`.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::Path;

use gridhaul_protocol::command::{Assertion, SiteCommand, StackRequest, Text};
use gridhaul_security::files::open_file;

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

/// A command of an option, without its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// The drivers of the value.
    Stack(Ends),
    /// The source reads what a program writes.
    PipeFrom,
    /// The destination writes what a program reads.
    PipeTo,
    /// The content of a file.
    Assertion(Ends),
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

/// What an option sends; nothing if it is not one of these.
pub(super) fn forms(name: &str) -> &'static [Form] {
    match name {
        "fsstack" | "file-system-stack" => &[Form::Stack(Ends::Both)],
        "src-fsstack" | "source-file-system-stack" => &[Form::Stack(Ends::Source)],
        "dst-fsstack" | "dest-file-system-stack" => &[Form::Stack(Ends::Destination)],
        // Observed from globus-url-copy 10.12: both, with the same command line.
        "pipe" => &[Form::PipeFrom, Form::PipeTo],
        "src-pipe" | "SP" => &[Form::PipeFrom],
        "dst-pipe" | "DP" => &[Form::PipeTo],
        "aa" | "authz-assert" => &[Form::Assertion(Ends::Both)],
        "saa" | "src-authz-assert" => &[Form::Assertion(Ends::Source)],
        "daa" | "dst-authz-assert" => &[Form::Assertion(Ends::Destination)],
        _ => &[],
    }
}

impl AfterLogin {
    /// The command with the value of an option; errors name it as `option`.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the value cannot be sent.
    pub(super) fn new(form: Form, option: &str, value: &OsStr) -> Result<Self, SiteError> {
        let unsendable = || SiteError::Unsendable(option.to_owned());
        let text = |value: &str| Text::new(value.to_owned()).ok_or_else(unsendable);
        let stack = |drivers: &str| {
            let drivers = text(drivers)?;
            Ok(SiteCommand::SetDiskStack(StackRequest::Drivers(drivers)))
        };
        let words = urls::text(value);
        let (ends, command) = match form {
            Form::Stack(ends) => (ends, stack(&words)?),
            Form::PipeFrom => (Ends::Source, stack(&popen(option, &words)?)?),
            Form::PipeTo => {
                let drivers = format!("{},ordering", popen(option, &words)?);
                (Ends::Destination, stack(&drivers)?)
            }
            Form::Assertion(ends) => {
                let read = assertion(Path::new(value)).map_err(|error| SiteError::File {
                    option: option.to_owned(),
                    file: value.display().to_string(),
                    error,
                })?;
                let assertion = Assertion(text(read.trim_end())?);
                (ends, SiteCommand::AuthzAssert(assertion))
            }
        };
        Ok(Self { ends, command })
    }

    pub(super) fn ends(&self) -> Ends {
        self.ends
    }
}

fn assertion(path: &Path) -> io::Result<String> {
    /// No server takes a longer line.
    const LONGEST: u64 = 1 << 20;

    let read = io::read_to_string(open_file(path)?.take(LONGEST + 1))?;
    match read.len() as u64 > LONGEST {
        true => Err(io::Error::other("it is too long for a command")),
        false => Ok(read),
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

#[cfg(test)]
mod tests {
    use gridhaul_protocol::command::Command;

    use super::*;

    fn sent(name: &str, value: &str) -> Result<[Vec<String>; 2], SiteError> {
        let made = forms(name)
            .iter()
            .map(|form| AfterLogin::new(*form, "-option", OsStr::new(value)));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        Ok(commands(&made).map(|commands| {
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
        let [of_source, of_destination] = sent("pipe", "cat#/etc/x").expect("sent");
        assert_eq!(of_source, ["SITE SETDISKSTACK popen:argv=#cat#/etc/x"]);
        let ordered = "SITE SETDISKSTACK popen:argv=#cat#/etc/x,ordering";
        assert_eq!(of_destination, [ordered]);
        sent("pipe", "cat /etc/x").expect_err("no separator");
        assert!(forms("src").is_empty());
        sent("fsstack", "a\r\nDELE x").expect_err("two commands");
        sent("aa", "/nonexistent").expect_err("no file");
    }
}
