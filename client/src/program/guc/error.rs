//! Wrong command lines of globus-url-copy.

use std::io;
use std::path::PathBuf;

use super::site::SiteError;
use crate::location::LocationError;
use crate::program::copy::ListError;

/// A wrong command line.
#[derive(Debug, thiserror::Error)]
pub(super) enum GucError {
    #[error("{0} needs a value")]
    Value(String),
    #[error("this program does not have the option {0} of globus-url-copy")]
    Option(String),
    #[error("give a source and a destination, or -f FILE")]
    Urls,
    #[error("-checksum-alg {0}: this is no name of an algorithm")]
    Algorithm(String),
    #[error("{0} {1}: this is no driver stack")]
    Stack(String, String),
    #[error("-data-cred {0}: {1}")]
    DataCredential(String, String),
    #[error("{}: {}", .0.display(), .1)]
    Plan(PathBuf, io::Error),
    #[error("{}", words_of(.0))]
    Options(#[from] clap::Error),
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Location(#[from] LocationError),
}

/// What is wrong with the value of an option.
fn words_of(error: &clap::Error) -> String {
    let words = error.to_string();
    let words = words.split("\n\n").next().unwrap_or_default();
    words.trim_start_matches("error: ").to_owned()
}
