//! Makes the files of the packages that follow from the sources, so that the server itself needs no code for them.
//!
//! ```text
//! gridhaul-packaging manual DIR        a page for the program and for each command
//! gridhaul-packaging completions DIR   for bash, fish and zsh
//! gridhaul-packaging configuration     /etc/gridhaul/gridhaul.toml
//! gridhaul-packaging components        the SBOM: the crates that the server is built of, as CycloneDX
//! gridhaul-packaging notices           the copyright notices of these crates
//! ```

mod components;
mod configuration;
mod manual;
mod metadata;
mod notices;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use gridhaul_server::config::CommandLine;

use metadata::{Metadata, MetadataError};

/// Makes the files of the packages that follow from the sources.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write the manual pages to a directory
    Manual {
        /// The directory
        directory: PathBuf,
    },
    /// Write the completions for bash, fish and zsh to a directory
    Completions {
        /// The directory
        directory: PathBuf,
    },
    /// Print the default configuration file
    Configuration,
    /// Print the software bill of materials
    Components,
    /// Print the licences of all components
    Notices,
}

/// A file that cannot be made.
#[derive(Debug, thiserror::Error)]
enum GenerateError {
    /// It cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// The dependencies are not known.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

fn main() -> ExitCode {
    match generate(&Arguments::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridhaul-packaging: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(what: &What) -> Result<(), GenerateError> {
    let text = match what {
        What::Manual { directory } => return Ok(manual::write(directory)?),
        What::Completions { directory } => {
            let mut command = CommandLine::command();
            for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
                clap_complete::generate_to(shell, &mut command, "gridhaul-server", directory)?;
            }
            return Ok(());
        }
        What::Configuration => configuration::text(),
        What::Components => components::text(&Metadata::read()?)?,
        What::Notices => notices::text(&Metadata::read()?)?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
