//! Makes the files of the packages that follow from the sources, so that the server itself needs no code for them.
//!
//! ```text
//! gridhaul-packaging manual DIR        a page for the program and for each command; with --client those of `gridhaul`
//! gridhaul-packaging completions DIR   for bash, fish and zsh; also with --client
//! gridhaul-packaging configuration     /etc/gridhaul/gridhaul.toml
//! gridhaul-packaging components        the SBOM: the crates that the server is built of, as CycloneDX
//! gridhaul-packaging notices           the copyright notices of these crates
//! ```

mod components;
mod configuration;
mod manual;
mod metadata;
mod notices;
mod program;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use metadata::{Metadata, MetadataError};
use program::Program;

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
        /// Make those of the client, gridhaul
        #[arg(long)]
        client: bool,
        /// The directory
        directory: PathBuf,
    },
    /// Write the completions for bash, fish and zsh to a directory
    Completions {
        /// Make those of the client, gridhaul
        #[arg(long)]
        client: bool,
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
        What::Manual { client, directory } => {
            return Ok(Program::of(*client).manual().write(directory)?);
        }
        What::Completions { client, directory } => {
            let mut command = Program::of(*client).command();
            let name = command.get_name().to_owned();
            for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
                clap_complete::generate_to(shell, &mut command, &name, directory)?;
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
