//! `globus-url-copy -rst`: copies that fail and that the client restarts.

use std::fmt;

use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, Relay, Server, check, content, url};

/// Large enough that the transfer is still running when the first reply arrives.
const SIZE: u64 = 100_000_000;

/// Stream mode restarts from zero, MODE E from the markers.
const MODES: [&[&str]; 3] = [&[], &["-fast"], &["-p", "4"]];

/// The end whose control channel fails.
#[derive(Clone, Copy)]
pub(super) enum End {
    Source,
    Destination,
}

impl End {
    /// Both ends.
    pub(super) const ALL: [Self; 2] = [Self::Destination, Self::Source];

    /// The replies at which it fails: at the start of the transfer, and at its end, after the destination has reported all data
    /// in restart markers.
    pub(super) fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::Destination => &["150", "226"],
            Self::Source => &["150"],
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        let mode_name = if mode.is_empty() {
            "stream".into()
        } else {
            mode.join(" ")
        };
        for end in End::ALL {
            for reply in end.breaks() {
                let name = format!(
                    "globus-url-copy/restart {mode_name} -rst, broken at {reply} of the {end}"
                );
                cases.extend(Case::third_party(name, move |context| {
                    third_party(context, mode, end, reply)
                }));
            }
        }
    }
    cases
}

/// Copies a file; the control channel of one end fails at a reply, and the client restarts.
pub(super) fn third_party(
    context: &Context<'_>,
    mode: &[&str],
    end: End,
    reply: &'static str,
) -> Result<Observation, Failure> {
    let expected = context.remote_sample("source", SIZE)?;
    let relayed = match end {
        End::Source => context.source(),
        End::Destination => context.destination(),
    };
    let relay = Relay::start(relayed.address(), reply)?;
    let by_relay = |server: &Server, name: &str| {
        format!(
            "ftp://{}{}",
            relay.address(),
            url::escape(&server.path(&context.name(name)))
        )
    };
    let urls = match end {
        End::Source => [by_relay(relayed, "source"), context.to("copy")],
        End::Destination => [context.from("source"), by_relay(relayed, "copy")],
    };
    context
        .globus_url_copy(["-rst", "-rst-retries", "5", "-rst-interval", "1"])
        .args(mode)
        .args(urls)
        .run()?
        .succeeded()?;
    check(relay.has_broken(), || format!("there was no reply {reply}"))?;
    content::same(&expected, &context.remote("copy"))?;
    Ok(Observation::none())
}
