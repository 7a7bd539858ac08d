//! A policer on a guest's cable: it drops packets beyond a rate and a burst, as policed circuits do.

use std::io;

use super::client::{Client, Finished};

/// The place of a policer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policer {
    /// It polices packets that arrive at the end `right`.
    OfRight,
    /// It polices packets that leave the end `left`, when that is a host of its own. A receiving host that shares its
    /// processors may get paced packets in bursts.
    OfLeft,
}

impl Policer {
    /// Installs the policer with a full token bucket, and resets its counters. Rate in bits per second, burst in bytes.
    ///
    /// # Errors
    ///
    /// When tc(8) fails.
    pub fn install(self, rate: u64, burst: u64) -> io::Result<()> {
        let (device, direction) = self.place();
        // Fails when none is installed.
        let _ = tc(&format!("qdisc del dev {device} clsact"));
        tc(&format!("qdisc add dev {device} clsact"))?;
        // tc-police(8): without `mtu` it drops every packet of more than 2040 bytes.
        tc(&format!(
            "filter add dev {device} {direction} protocol all matchall action police rate {rate} \
             burst {burst} mtu 9100 conform-exceed drop/ok"
        ))?;
        Ok(())
    }

    /// The number of packets that it has dropped.
    ///
    /// # Errors
    ///
    /// When tc(8) fails, or its output has another form.
    pub fn dropped(self) -> io::Result<u64> {
        let (device, direction) = self.place();
        let shown = tc(&format!("-s filter show dev {device} {direction}"))?.output();
        let count = shown
            .split("dropped ")
            .nth(1)
            .and_then(|rest| rest.split(',').next()?.parse().ok());
        count.ok_or_else(|| io::Error::other(shown))
    }

    /// The device and the direction.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::OfRight => ("right", "ingress"),
            Self::OfLeft => ("left", "egress"),
        }
    }
}

/// Runs tc(8) with these words.
pub(crate) fn tc(arguments: &str) -> io::Result<Finished> {
    let finished = Client::new("tc").args(arguments.split_whitespace()).run();
    let finished = finished.map_err(io::Error::other)?;
    match finished.status.success() {
        true => Ok(finished),
        false => Err(io::Error::other(finished.to_string())),
    }
}
