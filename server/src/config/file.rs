//! The configuration file: TOML, with the flags' names as keys.

use std::io;
use std::path::{Path, PathBuf};

use gridhaul_security::files::OpenFiles;

use super::settings::Settings;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read the configuration file {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// It is not TOML, or has an unknown setting or a wrong value. The text names the line.
    #[error("{}: {error}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The error, with its line.
        error: Box<toml::de::Error>,
    },
}

/// Reads the settings of a file that `opener` opens.
///
/// # Errors
///
/// When it cannot be read, or a line of it is wrong. No line is skipped.
pub(super) fn read(path: &Path, opener: &dyn OpenFiles) -> Result<Settings, FileError> {
    let text = opener.open(path).and_then(io::read_to_string);
    let text = text.map_err(|error| FileError::Read {
        path: path.to_owned(),
        error,
    })?;
    toml::from_str(&text).map_err(|error| FileError::Parse {
        path: path.to_owned(),
        error: Box::new(error),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gridhaul_security::files::OwnRights;

    use super::*;
    use crate::config::Bytes;

    fn settings(text: &str) -> Result<Settings, FileError> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        read(file.path(), &OwnRights)
    }

    #[test]
    fn keys_are_named_as_the_flags_are() {
        let settings = settings(
            "root = \"/srv\"\nlisten = [\"0.0.0.0:2811\", \"[::]:2811\"]\nanonymous = true\n\
             max-connections = 10\nbuffer-memory = \"64M\"\nstall-bytes = 100\n\
             port-range = \"50000-51000\"\ndata-hosts = [\"192.0.2.0/24\"]\nperms = \"0600\"\n",
        )
        .expect("valid");
        assert_eq!(settings.root, Some("/srv".into()));
        assert_eq!(settings.listen.map(|listen| listen.len()), Some(2));
        assert_eq!(settings.anonymous, Some(true));
        assert_eq!(settings.buffer_memory, Some(Bytes(64 << 20)));
        assert_eq!(settings.stall_bytes, Some(Bytes(100)));
        assert_eq!(settings.idle_timeout, None);
    }

    #[test]
    fn what_is_no_setting_is_refused_with_its_line() {
        let error = settings("root = \"/srv\"\nmax_connections = 10\n")
            .expect_err("an underscore")
            .to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(error.contains("max_connections"), "{error}");
    }

    #[test]
    fn bad_values_are_refused_with_their_line() {
        for (text, words) in [
            ("\n\nport-range = \"5\"", "'5' is not a range of ports"),
            (
                "\n\nbuffer-memory = \"lots\"",
                "'lots' is not a number of bytes",
            ),
            ("\n\nbuffer-memory = -1", "'-1' is not a number of bytes"),
            ("\n\nlisten = [\"nonsense\"]", "socket address"),
            ("\n\nidle-timeout = \"soon\"", "expected u64"),
        ] {
            let error = settings(text).expect_err(text).to_string();
            assert!(error.contains("line 3"), "{error}");
            assert!(error.contains(words), "{error}");
        }
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
            settings(block).expect(block);
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
