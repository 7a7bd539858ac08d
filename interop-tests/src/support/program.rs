//! The two server programs, and where they are; other programs that tests write.
//!
//! Ours is the one that `GRIDHAUL_SERVER` names; without that, the newer one of
//! `target/release/gridhaul-server` and `target/debug/gridhaul-server` beside the test program.
//! Cargo does not build it for this crate's tests: `cargo build -p gridhaul-server` does.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Writes a program, such as a script, that can be started at once. Another process writes it: what another thread starts meanwhile
/// has the descriptors of this process for a moment, and a file that is open for writing cannot be executed (`ETXTBSY`).
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_program(path: &Path, content: &str) -> io::Result<()> {
    let (text, new) = (path.with_extension("text"), path.with_extension("new"));
    fs::write(&text, content)?;
    let mut install = Command::new("install");
    let status = install.args(["-m", "755"]).args([&text, &new]).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("install: {status}")));
    }
    fs::remove_file(text)?;
    fs::rename(new, path)
}
