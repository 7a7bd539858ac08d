//! `gridhaul config`.

use super::{copy, read};
use crate::location::Url;
use crate::program::Ending;
use crate::program::output::{print, shown, warn};
use crate::program::profile::Value;

/// Prints what the configuration files set for a server, or for all, and where.
pub(in crate::program) fn run(url: Option<&str>) -> Ending {
    let host = match url.map(Url::parse).transpose() {
        Ok(url) => url.map(|url| url.server.host),
        Err(error) => {
            warn(error);
            return Ending::Usage;
        }
    };
    let profile = match read() {
        Ok(profile) => profile,
        Err(error) => {
            warn(error);
            return Ending::Usage;
        }
    };
    for setting in profile.of(host.as_deref(), &copy()).values() {
        let value = match &setting.value {
            Value::Flag(value) => value.to_string(),
            Value::Text(text) => format!("\"{}\"", shown(text.as_bytes())),
        };
        let line = format!("{} = {value}  # {}", setting.key, setting.origin);
        if let Err(error) = print(line) {
            warn(format_args!("standard output: {error}"));
            return Ending::Failed;
        }
    }
    Ending::Complete
}
