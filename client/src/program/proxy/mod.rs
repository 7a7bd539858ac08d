//! `gridhaul proxy`: proxies (RFC 3820) in the place of grid-proxy-init, grid-proxy-info and grid-proxy-destroy.
//!
//! ```text
//!   arguments   the command line
//!   create      signs a proxy with the key of the user
//!   show        what a proxy file has
//!   destroy     overwrites and removes it
//!   place       files that only their owner may replace
//! ```

mod arguments;
mod create;
mod destroy;
mod place;
mod show;

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::Ending;
use super::output::warn;

pub(super) use arguments::ProxyCommand;

pub(super) async fn run(command: &ProxyCommand) -> Ending {
    let done = match command {
        ProxyCommand::Create(arguments) => {
            let made = create::run(arguments).await;
            made.map_err(|error| error.to_string())
        }
        ProxyCommand::Show(arguments) => show::run(arguments).map_err(|error| error.to_string()),
        ProxyCommand::Destroy { file } => {
            destroy::run(file.as_deref()).map_err(|error| error.to_string())
        }
    };
    match done {
        Ok(()) => Ending::Complete,
        Err(error) => {
            warn(error);
            Ending::Failed
        }
    }
}

/// A time in UTC.
fn utc(time: SystemTime) -> String {
    let time = Timestamp::try_from(time);
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// Whole minutes, or days if there are several.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 172_800.. => format!("{} days", seconds / 86_400),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
