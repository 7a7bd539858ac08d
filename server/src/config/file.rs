//! The configuration file: TOML, with the flags' names as keys. Each key is read on its own, so that one run finds all errors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use gridhaul_security::files::OpenFiles;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::authorization::Rule;
use super::error::FileError;
use super::examples::{example, written};
use super::globus_file::is_of_globus;
use super::group_limits::GroupLimit;
use super::problem::{Place, Problem};
use super::settings::Settings;
use super::similar::similar;
use super::tables::{self, TableProblem};

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct FromFile {
    /// The settings without errors.
    pub(super) settings: Settings,
    /// The line of each key.
    pub(super) lines: BTreeMap<String, usize>,
    /// The lines of the tables of a key that has a list of them.
    pub(super) tables: BTreeMap<String, Vec<usize>>,
    pub(super) problems: Vec<Problem>,
}

/// Reads a file that `opener` opens. No line is skipped: what is not understood is a problem.
///
/// # Errors
///
/// When it cannot be read.
pub(super) fn read(path: &Path, opener: &dyn OpenFiles) -> Result<FromFile, FileError> {
    let text = opener.open(path).and_then(read_bounded);
    let text = text.and_then(|text| match is_of_globus(&text) {
        true => Err(io::Error::other(format!(
            "it is one of globus-gridftp-server; `gridhaul-server import {}` writes one of this server with its settings",
            path.display()
        ))),
        false => Ok(text),
    });
    let text = text.map_err(|error| FileError {
        path: path.to_owned(),
        error,
    })?;
    Ok(Reader { path, text: &text }.read())
}

fn read_bounded(file: File) -> io::Result<String> {
    /// A longer file is another one by mistake, such as a log.
    const LONGEST: u64 = 1 << 20;

    let text = io::read_to_string(file.take(LONGEST + 1))?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn read(&self) -> FromFile {
        /// The next run shows the others, after these are fixed.
        const MOST: usize = 100;

        let mut from = FromFile::default();
        let (table, mut errors) = DeTable::parse_recoverable(self.text);
        errors.truncate(MOST);
        for error in &errors {
            from.problems.push(self.syntax(error));
        }
        let broken: Vec<_> = errors.iter().filter_map(toml::de::Error::span).collect();
        for (key, value) in table.into_inner() {
            if from.problems.len() >= MOST {
                break;
            }
            let line = self.line(&key.span());
            // What stands in for a broken value is no value of the key.
            if broken.iter().any(|span| self.line(span) == line) {
                continue;
            }
            let name = key.into_inner().into_owned();
            from.lines.insert(name.clone(), line);
            if let DeValue::Array(values) = value.get_ref() {
                let lines = values.iter().map(|value| self.line(&value.span()));
                from.tables.insert(name.clone(), lines.collect());
            }
            match self.value(&name, line, value) {
                Ok(settings) => from.settings = from.settings.or(settings),
                Err(problems) => from.problems.extend(problems),
            }
        }
        from.problems.sort_by_key(Problem::line);
        from
    }

    /// The settings with this key alone.
    fn value(
        &self,
        key: &str,
        line: usize,
        value: Spanned<DeValue<'_>>,
    ) -> Result<Settings, Vec<Problem>> {
        if !Settings::is_key(key) {
            let hint = match value.get_ref() {
                DeValue::Table(_) => {
                    "; keys are not in tables, except for [[authorize]] and [[limit]]".to_owned()
                }
                _ => similar(key, Settings::keys()),
            };
            let text = format!(
                "{key}: there is no such key{hint}; `gridhaul-server serve --help` has all, without the leading dashes"
            );
            return Err(vec![self.problem(key, line, text)]);
        }
        let problems = match key {
            "authorize" => tables::problems::<Rule>(key, &value, self.text),
            "limit" => tables::problems::<GroupLimit>(key, &value, self.text),
            _ => Vec::new(),
        };
        if !problems.is_empty() {
            let problems = problems.into_iter();
            let told = problems
                .map(|TableProblem { span, text }| self.problem(key, self.line(&span), text));
            return Err(told.collect());
        }
        let span = value.span();
        let key_of_table = Spanned::new(span.clone(), key.to_owned().into());
        let table = DeTable::from_iter([(key_of_table, value)]);
        let table = Spanned::new(span.clone(), table);
        Settings::deserialize(table.into_deserializer()).map_err(|error| {
            let at = error.span().unwrap_or_else(|| span.clone());
            let text = self.wrong_value(key, &span, error.message());
            vec![self.problem(key, self.line(&at), text)]
        })
    }

    fn wrong_value(&self, key: &str, span: &Range<usize>, message: &str) -> String {
        match example(key) {
            Some(example) => example.wrong(key, &written(self.text, span), message),
            None => format!("{key}: {message}"),
        }
    }

    /// Of text that is not TOML.
    fn syntax(&self, error: &toml::de::Error) -> Problem {
        let span = error.span().unwrap_or_default();
        let line = self.line(&span);
        let written = self.text.lines().nth(line - 1).unwrap_or_default();
        let (key, value) = written.split_once('=').unwrap_or((written, ""));
        let (key, value) = (key.trim(), without_comment(value));
        if !Settings::is_key(key) {
            let text = format!("this is not TOML: {}", error.message());
            return Problem {
                key: None,
                ..self.problem("", line, text)
            };
        }
        let text = if error.message().contains("duplicate") {
            format!("{key}: this key is given twice: delete one of the lines")
        } else {
            let like = match example(key).and_then(|example| example.instead_of(&value)) {
                Some(example) => example.to_owned(),
                None => format!("\"{}\"", value.replace(['"', '\''], "")),
            };
            format!("{key}: {value} is not a value of TOML; write it like {key} = {like}")
        };
        self.problem(key, line, text)
    }

    fn problem(&self, key: &str, line: usize, text: String) -> Problem {
        Problem {
            key: Some(key.to_owned()),
            place: Some(Place::Line(self.path.to_owned(), line)),
            text,
        }
    }

    /// The line of a place in the text, from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..span.start);
        let before = before.unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

/// The value of a line that is not TOML, cut if it is long.
fn without_comment(value: &str) -> String {
    /// Longer values are cut.
    const SHOWN: usize = 60;

    let value = value.split('#').next().unwrap_or_default().trim();
    value.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gridhaul_security::files::OwnRights;

    use super::*;
    use crate::config::{Bytes, ListenAddress, Seconds};

    /// The file with this text.
    fn read_text(text: &str) -> FromFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        read(file.path(), &OwnRights).expect("it is there")
    }

    fn settings(text: &str) -> Settings {
        let from = read_text(text);
        assert!(from.problems.is_empty(), "{text}: {:?}", from.problems);
        from.settings
    }

    /// The problems, as their lines and texts.
    fn problems(text: &str) -> Vec<(usize, String)> {
        let problems = read_text(text).problems.into_iter();
        let told = problems.map(|problem| match problem.place {
            Some(Place::Line(_, line)) => (line, problem.text),
            place => panic!("{place:?}"),
        });
        told.collect()
    }

    #[test]
    fn keys_are_named_as_the_flags_are() {
        let settings = settings(
            "root = \"/srv\"\nlisten = [\"0.0.0.0:2811\", \"[::]:2811\"]\nanonymous = true\n\
             max-connections = 10\nbuffer-memory = \"64M\"\nstall-bytes = 100\n\
             port-range = \"50000-51000\"\ndata-hosts = [\"192.0.2.0/24\"]\nperms = \"0600\"\n",
        );
        assert_eq!(settings.root, Some("/srv".into()));
        assert_eq!(settings.listen.map(|listen| listen.len()), Some(2));
        assert_eq!(settings.anonymous, Some(true));
        assert_eq!(settings.buffer_memory, Some(Bytes(64 << 20)));
        assert_eq!(settings.stall_bytes, Some(Bytes(100)));
        assert_eq!(settings.idle_timeout, None);
    }

    #[test]
    fn a_value_stands_for_a_list_of_it_and_units_are_understood() {
        let settings = settings(
            "listen = \"0.0.0.0:2811\"\nallowed-drivers = \"tcp, null\"\nidle-timeout = \"10m\"\n\
             grace = 30\nbuffer-memory = \"4GiB\"\nmetrics-listen = 9281\n",
        );
        let listen: Vec<ListenAddress> = vec!["0.0.0.0:2811".parse().expect("an address")];
        assert_eq!(settings.listen, Some(listen));
        let drivers = ["tcp".to_owned(), "null".to_owned()];
        assert_eq!(settings.allowed_drivers, Some(drivers.to_vec()));
        assert_eq!(settings.idle_timeout, Some(Seconds(600)));
        assert_eq!(settings.grace, Some(Seconds(30)));
        assert_eq!(settings.buffer_memory, Some(Bytes(4 << 30)));
        assert_eq!(settings.metrics_listen, Some(ListenAddress::Port(9281)));
    }

    #[test]
    fn all_mistakes_are_found_each_with_its_line() {
        let found = problems(
            "root = \"/srv\"\nmax_connections = 10\nport-range = \"5\"\nbuffer-memory = \"lots\"\n\
             stall-bytes = -1\nlisten = [\"127.0.0.1:1\",\n  \"nonsense\"]\nidle-timeout = \"soon\"\n\
             perms = 644\numask = 022\nmax-transfers = \"many\"\nanonymous = \"yes\"\nuser = gridftp\n\
             log-format = 5\ndata-address = \"here\"\nroot = \"/again\"\n",
        );
        let expected = [
            (
                2,
                "max_connections: there is no such key (did you mean 'max-connections'?)",
            ),
            (
                3,
                "port-range: '5' is not a range of ports, like 50000-51000",
            ),
            (4, "buffer-memory: 'lots' is not a number of bytes, like"),
            (5, "stall-bytes: '-1' is not a number of bytes, like"),
            (7, "listen: 'nonsense' is not an address with a port, like"),
            (8, "idle-timeout: 'soon' is not a time, like"),
            (9, "perms: write it in quotes: \"644\""),
            (
                10,
                "umask: 022 is not a value of TOML; write it like umask = \"022\"",
            ),
            (
                11,
                "max-transfers: \"many\" is not a whole number; write it like max-transfers = 100",
            ),
            (
                12,
                "anonymous: \"yes\" is not true or false; write it like anonymous = true",
            ),
            (
                13,
                "user: gridftp is not a value of TOML; write it like user = \"gridftp\"",
            ),
            (14, "log-format: '5' is not a log format"),
            (
                15,
                "data-address: \"here\" is not a list of addresses in quotes; write it like",
            ),
            (16, "root: this key is given twice"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for ((line, text), (expected_line, words)) in found.iter().zip(expected) {
            assert_eq!(*line, expected_line, "{text}");
            assert!(text.starts_with(words), "{text}");
        }
    }

    #[test]
    fn another_file_by_mistake_is_refused_quickly() {
        let garbage = "2026-11-24T00:00:00Z INFO session opened peer=192.0.2.1\n".repeat(10_000);
        assert_eq!(problems(&garbage).len(), 100);
        let mut unknown = String::new();
        for number in 0..10_000 {
            unknown.push_str(&format!("key{number} = 1\n"));
        }
        assert_eq!(problems(&unknown).len(), 100);
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&[b'#'; (1 << 20) + 1]).expect("written");
        let error = read(file.path(), &OwnRights).expect_err("too long");
        assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
    }

    #[test]
    fn every_wrong_rule_is_found() {
        let found = problems(
            "root = \"/srv\"\n[[authorize]]\nidentity = \"*\"\nacount = \"grid\"\n\
             [[authorize]]\nidentity = \"*\"\nmap = true\n[[authorize]]\nmap = true\n\
             [[authorize]]\nidentity = \"*\"\nmap = true\nanonymous = true\n[limits]\nmovers = 1\n",
        );
        let expected = [
            (
                4,
                "[[authorize]] table 1: acount: a table has no such key (did you mean 'account'?)",
            ),
            (8, "[[authorize]] table 3: a rule needs one of identity"),
            (13, "must stand before the first [[authorize]]"),
            (14, "limits: there is no such key; keys are not in tables"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for ((line, text), (expected_line, words)) in found.iter().zip(expected) {
            assert_eq!(*line, expected_line, "{text}");
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn keys_of_tables_are_named_with_examples() {
        let found = problems(
            "[[limit]]\nname = 'a'\nmax-transfers = 'many'\nmax-connections = -1\nbandwidth = [5]\nnetwork = 5\n\
             [[limit]]\nname = 5\nbandwidth = 'fast'\nnetwork = ['x']\n\
             [[authorize]]\nidentity = true\nread-only = 'yes'\nroot = ['/srv']\n",
        );
        let expected = [
            (
                3,
                "[[limit]] table 1: max-transfers: 'many' is not a whole number; write it like max-transfers = 10",
            ),
            (
                4,
                "[[limit]] table 1: max-connections: -1 is not a whole number; write it like max-connections = 10",
            ),
            (
                5,
                "[[limit]] table 1: bandwidth: [5] is not a number of bytes",
            ),
            (
                6,
                "[[limit]] table 1: network: '5' is not an address or a block of addresses, like 192.0.2.7",
            ),
            (
                8,
                "[[limit]] table 2: name: 5 is not a name in quotes; write it like name = \"atlas\"",
            ),
            (
                9,
                "[[limit]] table 2: bandwidth: 'fast' is not a number of bytes, like 65536",
            ),
            (
                10,
                "[[limit]] table 2: network: 'x' is not an address or a block of addresses, like 192.0.2.7",
            ),
            (
                12,
                "[[authorize]] table 1: identity: true is not a subject in quotes",
            ),
            (
                13,
                "[[authorize]] table 1: read-only: 'yes' is not true or false; write it like read-only = true",
            ),
            (
                14,
                "[[authorize]] table 1: root: ['/srv'] is not a directory in quotes",
            ),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for ((line, text), (expected_line, words)) in found.iter().zip(expected) {
            assert_eq!(*line, expected_line, "{text}");
            assert!(text.starts_with(words), "{text}");
        }
    }

    #[test]
    fn values_of_another_type_get_no_words_of_the_toml_library() {
        for (text, words) in [
            (
                "idle-timeout = [5]",
                "idle-timeout: [5] is not a time; write it like",
            ),
            (
                "log-level = { a = 1 }",
                "log-level: { a = 1 } is not a level in quotes",
            ),
            (
                "listen = 1.5",
                "listen: 1.5 is not an address with a port in quotes",
            ),
            (
                "limit = 5",
                "limit: this is no list of tables; write [[limit]]",
            ),
            (
                "[authorize]\nmap = true",
                "authorize: this is no list of tables; write [[authorize]]",
            ),
        ] {
            let found = problems(text);
            assert!(
                matches!(&found[..], [(1, one)] if one.starts_with(words)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn one_network_stands_for_a_list_of_it() {
        let text = "[[limit]]\nname = 'a'\nmax-transfers = 1\nnetwork = ";
        let one = settings(&format!("{text}'10.0.0.0/8'"));
        assert_eq!(one.limit, settings(&format!("{text}['10.0.0.0/8']")).limit);
        assert!(one.limit.is_some_and(|limits| limits.len() == 1));
    }

    #[test]
    fn a_file_of_globus_gridftp_server_is_recognized() {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(b"# the site\nport 2811\nlog_level ERROR,WARN\n")
            .expect("written");
        let error = read(file.path(), &OwnRights)
            .expect_err("another format")
            .to_string();
        let remedy = format!("`gridhaul-server import {}`", file.path().display());
        assert!(
            error.contains("one of globus-gridftp-server") && error.contains(&remedy),
            "{error}"
        );
    }

    #[test]
    fn the_examples_in_the_documentation_are_valid() {
        let pages = [
            include_str!("../../../docs/operators/configuration.md"),
            include_str!("../../../docs/operators/accounts.md"),
            include_str!("../../../docs/operators/limits.md"),
            include_str!("../../../docs/operators/uploads.md"),
        ];
        let blocks: Vec<&str> = pages
            .iter()
            .flat_map(|page| page.split("```toml\n").skip(1))
            .filter_map(|rest| rest.split("```").next())
            .collect();
        assert!(blocks.len() >= 2, "there are examples");
        for block in blocks {
            settings(block);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/gridhaul.toml"), &OwnRights).expect_err("missing");
        assert!(
            error.to_string().contains("/nonexistent/gridhaul.toml"),
            "{error}"
        );
    }
}
