//! `gsi-authz.conf`: callouts that globus-gridftp-server loads into its process, to LCMAPS, LCAS or Argus.
//!
//! This server does not load them. A site that bans or maps users there must not lose that without notice, so the server does
//! not start beside such a file unless its own callout replaces it or the administrator says to ignore it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use gridhaul_security::files::OpenFiles;

use crate::config::Gsi;

/// The maximum size of the file.
const MAX_BYTES: u64 = 1 << 20;

/// What the file means for this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GsiAuthz {
    /// It does not exist, or names no callout.
    NoCallouts,
    /// The configured callout takes the place of the callout in this line.
    Replaced(ActiveLine),
    /// The administrator wants the callout in this line to be ignored.
    Ignored(ActiveLine),
}

/// A line that names a callout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActiveLine {
    pub(crate) path: PathBuf,
    pub(crate) number: usize,
    pub(crate) text: String,
}

/// Why the server does not start beside the file.
#[derive(Debug, thiserror::Error)]
pub enum GsiAuthzError {
    /// It names a callout.
    #[error(
        "{}, line {number}, names a callout of globus-gridftp-server ({text}), which this server does not load: users whom it \
         bans would get in. Ask it with authz-callout, or comment the line out, or set ignore-gsi-authz = true",
        path.display()
    )]
    Active {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        number: usize,
        /// Its beginning.
        text: String,
    },
    /// It cannot be read.
    #[error(
        "{}: {error}; it may name callouts of globus-gridftp-server: let the server read it, or set ignore-gsi-authz = true",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

/// Reads the file. `has_callout` tells whether `authz-callout` is set.
pub(crate) fn read(
    gsi: &Gsi,
    has_callout: bool,
    opener: &dyn OpenFiles,
) -> Result<GsiAuthz, GsiAuthzError> {
    let path = &gsi.gsi_authz;
    let content = match opener.open(path).and_then(content) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(GsiAuthz::NoCallouts),
        Err(_) if gsi.ignore_gsi_authz || has_callout => return Ok(GsiAuthz::NoCallouts),
        Err(error) => {
            return Err(GsiAuthzError::Unreadable {
                path: path.clone(),
                error,
            });
        }
    };
    match active_line(path, &content) {
        None => Ok(GsiAuthz::NoCallouts),
        Some(line) if has_callout => Ok(GsiAuthz::Replaced(line)),
        Some(line) if gsi.ignore_gsi_authz => Ok(GsiAuthz::Ignored(line)),
        Some(ActiveLine { path, number, text }) => {
            Err(GsiAuthzError::Active { path, number, text })
        }
    }
}

fn content(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "it is larger than {MAX_BYTES} bytes"
        )));
    }
    Ok(content)
}

/// The first line with anything before its comment, as globus_callout 4.3 reads the file.
fn active_line(path: &Path, content: &[u8]) -> Option<ActiveLine> {
    /// Enough to recognize the line.
    const SHOWN: usize = 100;

    let lines = content.split(|&byte| byte == b'\n').enumerate();
    let mut active = lines.filter_map(|(index, line)| {
        let text = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        let text = text.trim_ascii();
        (!text.is_empty()).then_some((index + 1, text))
    });
    let (number, text) = active.next()?;
    let text = String::from_utf8_lossy(text);
    let shown = text.chars().filter(|letter| !letter.is_control());
    Some(ActiveLine {
        path: path.to_owned(),
        number,
        text: shown.take(SHOWN).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callout_is_a_line_that_is_no_comment() {
        let line = |content: &str| {
            let active = active_line(Path::new("/f"), content.as_bytes());
            active.map(|line| (line.number, line.text))
        };
        let callout = "globus_mapping liblcas_lcmaps_gt4_mapping.so lcmaps_callout";
        assert_eq!(line(""), None);
        assert_eq!(line("# globus_mapping x y\n\n  \t# more\r\n"), None);
        assert_eq!(
            line(&format!("#\n  {callout}  # x\n")),
            Some((2, callout.to_owned()))
        );
    }
}
