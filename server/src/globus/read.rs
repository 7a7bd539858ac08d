//! Reads configuration files of globus-gridftp-server, as its `globus_i_gfs_config.c` does, and files with variables, as
//! its unit and its init script do.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::given::{Aside, Given, NotAValue, Place, Placed, Value};
use super::table;
use crate::config::similar;

/// A file that cannot be read, or that globus-gridftp-server would refuse.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file or directory cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the OS.
        error: io::Error,
    },
    /// It is longer than any configuration.
    #[error("{} is longer than 1 MiB: it is no configuration of globus-gridftp-server", .0.display())]
    TooLong(PathBuf),
    /// The directory has too many files.
    #[error("{} has more than 1000 files: it is no directory of configurations", .0.display())]
    TooMany(PathBuf),
    /// A line is no option with a value.
    #[error("{place}: {what}")]
    Line {
        /// The file and the line.
        place: Place,
        /// What is wrong, and the remedy.
        what: LineError,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is no text.
    #[error("this is not UTF-8 text")]
    NotText,
    /// There is no such option.
    #[error("globus-gridftp-server has no option {0:?}{1}")]
    Unknown(String, String),
    /// There is no value.
    #[error("{0:?} has no value; write: NAME VALUE, with quotes around a value that has blanks")]
    NoValue(String),
    /// There is more than one value.
    #[error("{0:?} follows the value; write quotes around a value that has blanks")]
    Rest(String),
    /// A quote is not closed, or encloses nothing.
    #[error("the quotes are empty or not closed")]
    Quotes,
    /// The value is of another kind.
    #[error("the value of {0} {1}")]
    Value(&'static str, NotAValue),
}

/// Reads a configuration file into `given`.
///
/// # Errors
///
/// When it cannot be read, or globus-gridftp-server would refuse it.
pub(crate) fn read_file(path: &Path, given: &mut Given) -> Result<(), ReadError> {
    each_line(path, |line, place| configuration_line(line, place, given))
}

/// Reads the files of a directory, in the order of their names, without hidden files and those that editors and package managers
/// leave (`globus_l_gfs_config_load_config_dir`).
///
/// # Errors
///
/// As those of [`read_file`].
pub(crate) fn read_directory(path: &Path, given: &mut Given) -> Result<Vec<PathBuf>, ReadError> {
    const MOST: usize = 1000;
    const LEFT_BEHIND: [&str; 7] = [
        ".bak",
        ".dpkg-dist",
        ".dpkg-new",
        ".dpkg-old",
        ".rpmnew",
        ".rpmsave",
        "~",
    ];

    let failed = |error| ReadError::Read {
        path: path.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let text = name.to_string_lossy();
        if !text.starts_with('.') && !LEFT_BEHIND.iter().any(|end| text.ends_with(end)) {
            files.push(path.join(&name));
        }
        if files.len() > MOST {
            return Err(ReadError::TooMany(path.to_owned()));
        }
    }
    files.sort();
    for file in &files {
        read_file(file, given)?;
    }
    Ok(files)
}

/// Reads a file of variables, `NAME=value`, as `/etc/default/globus-gridftp-server`. Other lines of a shell script are noted
/// as without effect.
///
/// # Errors
///
/// When it cannot be read.
pub(crate) fn read_variables(path: &Path, given: &mut Given) -> Result<(), ReadError> {
    each_line(path, |line, place| {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        match assignment(text) {
            Some((name, value)) => given.set_variable(
                name,
                Placed {
                    value,
                    place,
                    written: text.to_owned(),
                },
            ),
            None => given.asides.push(Aside {
                place,
                written: text.to_owned(),
                reason: "not NAME=value: see what this line of a shell script does".to_owned(),
            }),
        }
        Ok(())
    })
}

/// `NAME=value` or `export NAME=value`, without expansions.
fn assignment(text: &str) -> Option<(&str, String)> {
    let text = text.strip_prefix("export ").unwrap_or(text).trim_start();
    let (name, value) = text.split_once('=')?;
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty()
    };
    let quoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let value = quoted.unwrap_or(value);
    let is_plain = quoted.is_some() || !value.contains(char::is_whitespace);
    let expands = value.contains(['$', '`', '\\', ';', '"', '\'']);
    (is_name(name) && is_plain && !expands).then(|| (name, value.to_owned()))
}

/// Calls `line` with each line and its place.
fn each_line(
    path: &Path,
    mut line: impl FnMut(&str, Place) -> Result<(), LineError>,
) -> Result<(), ReadError> {
    const LONGEST: u64 = 1 << 20;

    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
        .map_err(|error| ReadError::Read {
            path: path.to_owned(),
            error,
        })?;
    if bytes.len() as u64 > LONGEST {
        return Err(ReadError::TooLong(path.to_owned()));
    }
    for (number, bytes) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let place = Place::Line(path.to_owned(), number + 1);
        let text = str::from_utf8(bytes).map_err(|_| LineError::NotText);
        text.and_then(|text| line(text, place.clone()))
            .map_err(|what| ReadError::Line { place, what })?;
    }
    Ok(())
}

/// `NAME VALUE`, `$NAME VALUE` or a comment.
fn configuration_line(line: &str, place: Place, given: &mut Given) -> Result<(), LineError> {
    let text = line.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(());
    }
    let (is_variable, words) = match text.strip_prefix('$') {
        Some(words) => (true, words),
        None => (false, text),
    };
    let (name, rest) = word(words)?;
    let (value, rest) = word(rest).map_err(|error| match error {
        LineError::NoValue(_) => LineError::NoValue(name.to_owned()),
        error => error,
    })?;
    if !rest.trim().is_empty() {
        return Err(LineError::Rest(rest.trim().to_owned()));
    }
    let written = text.to_owned();
    if is_variable {
        let value = value.to_owned();
        given.set_variable(
            name,
            Placed {
                value,
                place,
                written,
            },
        );
        return Ok(());
    }
    let Some(option) = table::by_key(name) else {
        let known = table::options().filter_map(|option| option.key);
        let hint = similar(name, known);
        return Err(LineError::Unknown(name.to_owned(), hint));
    };
    let value =
        Value::parse(option.kind, value).map_err(|error| LineError::Value(option.name(), error))?;
    given.set(
        option,
        Placed {
            value,
            place,
            written,
        },
    );
    Ok(())
}

/// The first word of a text, which may be in quotes, and the rest.
fn word(text: &str) -> Result<(&str, &str), LineError> {
    let text = text.trim_start();
    if let Some(quoted) = text.strip_prefix('"') {
        let (word, rest) = quoted.split_once('"').ok_or(LineError::Quotes)?;
        if word.is_empty() {
            return Err(LineError::Quotes);
        }
        return Ok((word, rest));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    match text.split_at(end) {
        ("", _) => Err(LineError::NoValue(String::new())),
        (word, rest) => Ok((word, rest)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> Result<Given, ReadError> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("written");
        let mut given = Given::default();
        read_file(file.path(), &mut given)?;
        Ok(given)
    }

    #[test]
    fn lines_have_a_name_and_a_value_that_may_be_quoted() {
        let given = read(
            b"# comment\n\n port\t2811\n\"banner\" \"two words\"\nbanner \"two # words\"\n\
              $GRIDMAP /map\nallow_anonymous 1\n",
        )
        .expect("valid");
        assert_eq!(given.number("port"), Some(2811));
        assert_eq!(given.text("banner"), Some("two # words"));
        assert_eq!(given.variable("GRIDMAP"), Some("/map"));
        assert!(given.is_on("allow_anonymous"));
        assert_eq!(given.asides.len(), 1, "{:?}", given.asides);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, words) in [
            (
                "port 2811\nprot 1\n",
                "2: globus-gridftp-server has no option \"prot\" (did you mean 'port'?)",
            ),
            ("port\n", "1: \"port\" has no value"),
            ("port 1 2\n", "1: \"2\" follows the value"),
            ("banner \"x\n", "1: the quotes are empty or not closed"),
            ("banner \"\"\n", "1: the quotes are empty or not closed"),
            ("cas yes\n", "1: the value of cas must be 0 or 1"),
            ("port many\n", "1: the value of port must be a number"),
            ("$\n", "1: \"\" has no value"),
            ("include /etc/gridftp.d\n", "no option \"include\""),
        ] {
            let error = read(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let error = read(b"port 1\n\xff\xfe\n").expect_err("no text");
        assert!(error.to_string().ends_with(":2: this is not UTF-8 text"));
        let error = read(&vec![b'#'; (1 << 20) + 1]).expect_err("too long");
        assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
    }

    #[test]
    fn a_directory_is_read_by_name_without_what_editors_leave() {
        let place = tempfile::tempdir().expect("a directory");
        for (name, text) in [
            ("20-port", "port 2\n"),
            ("10-port", "port 1\n"),
            ("30-port.rpmsave", "port 3\n"),
            ("40-port~", "port 4\n"),
            (".50-port", "port 5\n"),
        ] {
            fs::write(place.path().join(name), text).expect("written");
        }
        let mut given = Given::default();
        let files = read_directory(place.path(), &mut given).expect("valid");
        assert_eq!(files.len(), 2);
        assert_eq!(given.number("port"), Some(2));
    }

    #[test]
    fn assignments_of_a_shell_are_variables_and_other_lines_are_noted() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "# x\nGLOBUS_TCP_PORT_RANGE=\"50000,51000\"\nexport GRIDMAP=/map\nconf=$x\n\
                    if true; then\n";
        fs::write(file.path(), text).expect("written");
        let mut given = Given::default();
        read_variables(file.path(), &mut given).expect("read");
        assert_eq!(given.variable("GLOBUS_TCP_PORT_RANGE"), Some("50000,51000"));
        assert_eq!(given.variable("GRIDMAP"), Some("/map"));
        assert_eq!(given.asides.len(), 2);
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes);
        }

        #[test]
        fn no_line_panics(line in "[$\" a-z_0-9#]{0,40}") {
            let place = Place::Argument;
            let _ = configuration_line(&line, place, &mut Given::default());
            let _ = assignment(&line);
        }
    }
}
