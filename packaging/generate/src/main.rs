//! Makes the files of the packages that follow from the sources, so that the programs themselves need no code for them: those
//! of the server, or with `--client` those of `gridhaul`.
//!
//! ```text
//! gridhaul-packaging manual DIR        a page for the program and for each command
//! gridhaul-packaging completions DIR   for bash, fish and zsh
//! gridhaul-packaging configuration     /etc/gridhaul/gridhaul.toml, /etc/gridhaul/client.toml
//! gridhaul-packaging components        the SBOM: the crates that the program is built of, as CycloneDX
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
    /// Make those of the client, gridhaul
    #[arg(long, global = true)]
    client: bool,
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
    let arguments = Arguments::parse();
    match generate(Program::of(arguments.client), &arguments.what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridhaul-packaging: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(program: Program, what: &What) -> Result<(), GenerateError> {
    let text = match what {
        What::Manual { directory } => return Ok(program.manual().write(directory)?),
        What::Completions { directory } => {
            let mut command = program.command();
            for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
                clap_complete::generate_to(shell, &mut command, program.name(), directory)?;
            }
            return Ok(());
        }
        What::Configuration => configuration::text(program),
        What::Components => components::text(&Metadata::read(program)?)?,
        What::Notices => notices::text(program, &Metadata::read(program)?)?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
