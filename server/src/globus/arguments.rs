//! The command line of globus-gridftp-server (`globus_l_gfs_config_load_commandline`).

use super::given::{NotAValue, Place, Placed, Value};
use super::option::{GlobusOption, Kind};
use super::table;

/// An argument that globus-gridftp-server would refuse too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    /// There is no such option.
    #[error("Unknown option on command line: {0}")]
    Unknown(String),
    /// The option needs a value.
    #[error("Option {0} is missing a value")]
    NoValue(String),
    /// The value is of another kind.
    #[error("the value of {0} {1}")]
    Value(String, NotAValue),
}

/// An option of the command line, with its value.
pub(crate) type Argument = (&'static GlobusOption, Placed<Value>);

/// Parses the arguments. One or two dashes may precede an option, and `no-` or `n` negates a switch.
///
/// # Errors
///
/// When globus-gridftp-server would not take them.
pub(crate) fn parse(arguments: &[String]) -> Result<Vec<Argument>, ArgumentError> {
    let mut parsed = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (option, is_on) = option(word)?;
        let (value, written) = match option.kind {
            Kind::Switch(_) => (Value::Switch(is_on), word.clone()),
            kind => {
                let text = words
                    .next()
                    .ok_or_else(|| ArgumentError::NoValue(word.clone()))?;
                let value = Value::parse(kind, text)
                    .map_err(|error| ArgumentError::Value(word.clone(), error))?;
                (value, format!("{word} {text}"))
            }
        };
        let placed = Placed {
            value,
            place: Place::Argument,
            written,
        };
        parsed.push((option, placed));
    }
    Ok(parsed)
}

/// The option of a word, and whether it is not negated.
fn option(word: &str) -> Result<(&'static GlobusOption, bool), ArgumentError> {
    let name = word.strip_prefix('-').unwrap_or(word);
    let name = name.strip_prefix('-').unwrap_or(name);
    let negated = ["no-", "No-", "nO-", "NO-", "n", "N"];
    let negated = negated.iter().find_map(|no| name.strip_prefix(no));
    let found = match negated {
        Some(name) => table::by_flag(name).map(|option| (option, false)),
        None => table::by_flag(name).map(|option| (option, true)),
    };
    found.ok_or_else(|| ArgumentError::Unknown(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Result<Vec<(String, Value)>, ArgumentError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let arguments = parse(&words)?.into_iter();
        Ok(arguments
            .map(|(option, placed)| (option.name().to_owned(), placed.value))
            .collect())
    }

    #[test]
    fn command_lines_of_the_toolkit_are_understood() {
        let line = "-no-chdir -no-exit -d 0 -auth-level 4 -p 0 --aa -nf -no-cas -1 -l log";
        let expected = [
            ("chdir", Value::Switch(false)),
            ("bad_signal_exit", Value::Switch(false)),
            ("log_level", Value::Text("0".to_owned())),
            ("auth_level", Value::Number(4)),
            ("port", Value::Number(0)),
            ("allow_anonymous", Value::Switch(true)),
            ("fork", Value::Switch(false)),
            ("cas", Value::Switch(false)),
            ("single", Value::Switch(true)),
            ("log_single", Value::Text("log".to_owned())),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(parsed(line), Ok(expected.to_vec()));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, words) in [
            ("-P 0", "Unknown option on command line: -P"),
            ("-p", "Option -p is missing a value"),
            ("-p many", "the value of -p must be a number"),
            ("-", "Unknown option on command line: -"),
            ("-no-", "Unknown option on command line: -no-"),
        ] {
            let error = parsed(line).expect_err(line).to_string();
            assert!(error.starts_with(words), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_arguments_panic(words in proptest::collection::vec("-{0,2}[a-zA-Z0-9 -]{0,12}", 0..6)) {
            let _ = parse(&words);
        }
    }
}
