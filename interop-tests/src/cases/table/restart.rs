//! `globus-url-copy -rst`: copies that fail and that the client restarts.

use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, Relay, Server, check, content, url};

/// Large enough that the transfer is still running when the first reply arrives.
const SIZE: u64 = 100_000_000;

/// The end whose control channel fails, and the reply at which it does: at the start of the transfer, and at its
/// end, after the destination has reported all data in restart markers.
const BREAKS: [(End, &str); 3] = [
    (End::Destination, "150"),
    (End::Destination, "226"),
    (End::Source, "150"),
];

/// Stream mode restarts from zero, MODE E from the markers.
const MODES: [&[&str]; 3] = [&[], &["-fast"], &["-p", "4"]];

#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        for (end, reply) in BREAKS {
            let mode_name = if mode.is_empty() {
                "stream".into()
            } else {
                mode.join(" ")
            };
            let end_name = match end {
                End::Source => "source",
                End::Destination => "destination",
            };
            let name = format!(
                "globus-url-copy/restart {mode_name} -rst, broken at {reply} of the {end_name}"
            );
            cases.extend(Case::third_party(name, move |context| {
                third_party(context, mode, end, reply)
            }));
        }
    }
    cases
}

fn third_party(
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
