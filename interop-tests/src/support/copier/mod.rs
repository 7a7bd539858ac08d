//! The program that runs the commands of `globus-url-copy`: that program, or ours in its place.

mod differences;
mod listing;
mod translation;

use std::ffi::OsString;
use std::path::PathBuf;

/// The program that runs the commands of `globus-url-copy`.
#[derive(Clone, Debug, Default)]
pub enum Copier {
    /// `globus-url-copy` itself.
    #[default]
    GlobusUrlCopy,
    /// Our client at this path, with the same arguments: `gridhaul guc`.
    Guc(PathBuf),
    /// Our client at this path, with arguments that mean the same: `gridhaul copy`, `gridhaul ls` and `gridhaul tree`.
    Copy(PathBuf),
}

/// A command line of a copier.
pub(super) struct Line {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

/// What the errors of a program look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Those of globus-url-copy, which other programs than ours have, too.
    Globus,
    /// Those of `gridhaul copy`.
    Copy,
    /// Those of `gridhaul ls` and `gridhaul tree`.
    Listing,
}

/// A command that `gridhaul copy` has no options for, and why.
#[derive(Debug, thiserror::Error)]
#[error("gridhaul copy has nothing for {option}: {reason}")]
pub struct Inexpressible {
    /// The option of globus-url-copy.
    pub option: String,
    /// Why not.
    pub reason: &'static str,
}

impl Copier {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::GlobusUrlCopy => "globus-url-copy",
            Self::Guc(_) => "gridhaul guc",
            Self::Copy(_) => "gridhaul copy",
        }
    }

    /// Why a case fails with this program on purpose; `None` if it must pass.
    pub fn difference(&self, case: &str) -> Option<&'static str> {
        let (known, absent) = match self {
            Self::GlobusUrlCopy => return None,
            Self::Guc(_) => (differences::OF_GUC, None),
            Self::Copy(_) => (differences::OF_COPY, translation::absent(case)),
        };
        let found = known.iter().find(|(part, _)| case.contains(part));
        found.map(|(_, reason)| *reason).or(absent)
    }

    /// The command line that does what these arguments of globus-url-copy ask for.
    pub(super) fn line(
        &self,
        program: &OsString,
        arguments: &[OsString],
    ) -> Result<Line, Inexpressible> {
        Ok(match self {
            Self::GlobusUrlCopy => Line {
                program: program.clone(),
                arguments: arguments.to_vec(),
            },
            Self::Guc(path) => Line {
                program: path.into(),
                arguments: [&[OsString::from("guc")], arguments].concat(),
            },
            Self::Copy(path) => Line {
                program: path.into(),
                arguments: translation::translated(arguments)?,
            },
        })
    }

    /// What the errors of a command line look like.
    pub(super) fn words(&self, line: &Line) -> Words {
        match (self, line.arguments.first()) {
            (Self::GlobusUrlCopy | Self::Guc(_), _) => Words::Globus,
            (Self::Copy(_), Some(command)) if command != "copy" => Words::Listing,
            (Self::Copy(_), _) => Words::Copy,
        }
    }

    /// Standard output in the form of globus-url-copy, as far as cases look at it.
    pub(super) fn understood(&self, stdout: Vec<u8>, line: &Line) -> Vec<u8> {
        match self.words(line) {
            Words::Listing => listing::as_globus(&stdout, line.arguments.last()),
            Words::Globus | Words::Copy => stdout,
        }
    }
}
