//! The two server programs, and where they are.
//!
//! Ours is the one that `GRIDHAUL_SERVER` names; without that, the newer one of
//! `target/release/gridhaul-server` and `target/debug/gridhaul-server` beside the test program.
//! Cargo does not build it for this crate's tests: `cargo build -p gridhaul-server` does.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::client::{ClientError, find};

/// A server program.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Ours: `gridhaul-server`.
    Gridhaul,
    /// The reference: `globus-gridftp-server`.
    Globus,
}

impl Kind {
    /// The path of the program.
    ///
    /// # Errors
    ///
    /// When it is not built or not installed.
    pub fn program(self) -> Result<PathBuf, ProgramError> {
        match self {
            Self::Gridhaul => gridhaul_program(),
            Self::Globus => Ok(find(OsStr::new("globus-gridftp-server"))?),
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gridhaul => "ours",
            Self::Globus => "theirs",
        }
    }
}

/// Why there is no server program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Our program has not been built.
    #[error(
        "gridhaul-server was not found in {}: run `cargo build -p gridhaul-server`, or set \
         GRIDHAUL_SERVER to its path", .searched.display()
    )]
    NotBuilt {
        /// The target directory that was searched.
        searched: PathBuf,
    },
    /// The real server is not installed.
    #[error(transparent)]
    NotInstalled(#[from] ClientError),
    /// The path of the test program is unknown.
    #[error("cannot find the target directory: {0}")]
    System(#[from] io::Error),
}

/// Our client, `gridhaul`: beside our server.
///
/// # Errors
///
/// When the server has not been built.
pub fn gridhaul_client() -> Result<PathBuf, ProgramError> {
    Ok(gridhaul_program()?.with_file_name("gridhaul"))
}

/// Our program: see the module's description.
///
/// # Errors
///
/// When it has not been built.
pub fn gridhaul_program() -> Result<PathBuf, ProgramError> {
    if let Some(program) = std::env::var_os("GRIDHAUL_SERVER") {
        return Ok(program.into());
    }
    // target/PROFILE/deps/TEST, or target/PROFILE/BINARY.
    let executable = std::env::current_exe()?;
    let target = executable
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").exists())
        .unwrap_or_else(|| Path::new("target"));
    ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("gridhaul-server"))
        .filter_map(|program| Some((fs::metadata(&program).ok()?.modified().ok()?, program)))
        .max()
        .map(|(_, program)| program)
        .ok_or_else(|| ProgramError::NotBuilt {
            searched: target.to_owned(),
        })
}
