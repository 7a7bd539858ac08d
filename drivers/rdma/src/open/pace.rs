//! The rate of a channel: that of the options, where the endpoint can keep it.

use crate::handshake::Mode;
use crate::pacing::Rate;
use crate::provider::Endpoint;

/// The rate on a rail: a search goes up to that of its port.
pub(super) fn on_rail(rate: Rate, endpoint: &dyn Endpoint, rail: usize) -> Rate {
    match rate {
        Rate::Auto { .. } => Rate::Auto {
            port: endpoint.port_rate(rail),
        },
        Rate::Any | Rate::Fixed(_) => rate,
    }
}

/// The rate at which messages are sent on each rail, and why `rate=auto` was requested and is off.
pub(super) fn rate(
    wanted: Rate,
    mode: Mode,
    endpoint: &dyn Endpoint,
) -> (Rate, Option<&'static str>) {
    let Rate::Auto { .. } = wanted else {
        return (wanted, None);
    };
    let limits = endpoint.limits();
    let reason = if limits.over_tcp {
        "TCP has congestion control"
    } else if mode == Mode::Get {
        "a receiver that fetches does not see which packets of a READ were lost"
    } else if !limits.replaces {
        "a search must not risk losses where lost queue pairs are not replaced"
    } else if (0..limits.rails).any(|rail| endpoint.repeats(rail).is_none()) {
        // A late message is then no sign of a loss: RoCE switches pause senders (PFC), and adapters slow down
        // by themselves (DCQCN).
        "the device does not count retransmissions, so a late message cannot be told from a lost one"
    } else {
        return (wanted, None);
    };
    (Rate::Any, Some(reason))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sim::{FabricSettings, Link, SharedFabric};

    #[test]
    fn a_rate_is_found_only_where_losses_are_seen() {
        let settings = FabricSettings::new(Link::new(1_000_000, Duration::from_millis(1)));
        let blind = FabricSettings {
            counts_repeats: false,
            ..settings.clone()
        };
        let lasting = FabricSettings {
            replaces: false,
            ..settings.clone()
        };
        let off = |settings, mode| {
            let [endpoint, _] = SharedFabric::new(settings).connect(1).unwrap();
            let (rate, reason) = rate(Rate::Auto { port: None }, mode, &endpoint);
            assert_eq!(rate == Rate::Any, reason.is_some());
            assert_eq!(
                super::rate(Rate::Fixed(1), mode, &endpoint),
                (Rate::Fixed(1), None)
            );
            reason.unwrap_or_default()
        };
        assert_eq!(off(settings.clone(), Mode::Put), "");
        assert!(off(settings, Mode::Get).contains("fetches"));
        assert!(off(lasting, Mode::Put).contains("replaced"));
        assert!(off(blind, Mode::Put).contains("does not count"));
    }
}
