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
        let known = match self {
            Self::GlobusUrlCopy => &[][..],
            Self::Guc(_) => differences::OF_GUC,
            Self::Copy(_) => differences::OF_COPY,
        };
        let found = known.iter().find(|(part, _)| case.contains(part));
        found.map(|(_, reason)| *reason)
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

    /// Whether errors are those of `gridhaul copy`, in place of those of globus-url-copy.
    pub(super) fn has_own_words(&self) -> bool {
        matches!(self, Self::Copy(_))
    }

    /// Standard output in the form of globus-url-copy, as far as cases look at it.
    pub(super) fn understood(&self, stdout: Vec<u8>, line: &Line) -> Vec<u8> {
        let command = line.arguments.first();
        let lists = self.has_own_words() && command.is_some_and(|command| command != "copy");
        match lists {
            true => listing::as_globus(&stdout, line.arguments.last()),
            false => stdout,
        }
    }
}
