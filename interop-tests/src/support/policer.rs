//! Drops what goes over a guest's cable beyond a rate and a burst, as policed circuits do.

use std::io;

use super::client::{Client, Finished};

/// Where a policer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policer {
    /// It sees what comes to the end `right`.
    OfRight,
    /// It sees what leaves the end `left`, where that is a host of its own: what was sent there at times may come all at
    /// once to a host that shares its processors.
    OfLeft,
}

impl Policer {
    /// Begins anew with a whole burst, and nothing dropped. Rate in bits per second, burst in bytes.
    ///
    /// # Errors
    ///
    /// When tc(8) fails.
    pub fn install(self, rate: u64, burst: u64) -> io::Result<()> {
        let (device, direction) = self.place();
        // There may be none yet.
        let _ = tc(&format!("qdisc del dev {device} clsact"));
        tc(&format!("qdisc add dev {device} clsact"))?;
        // tc-police(8): without `mtu` it drops every packet of more than 2040 bytes.
        tc(&format!(
            "filter add dev {device} {direction} protocol all matchall action police rate {rate} \
             burst {burst} mtu 9100 conform-exceed drop/ok"
        ))?;
        Ok(())
    }

    /// Packets that it has dropped.
    ///
    /// # Errors
    ///
    /// When tc(8) fails, or says something else.
    pub fn dropped(self) -> io::Result<u64> {
        let (device, direction) = self.place();
        let shown = tc(&format!("-s filter show dev {device} {direction}"))?.output();
        let count = shown
            .split("dropped ")
            .nth(1)
            .and_then(|rest| rest.split(',').next()?.parse().ok());
        count.ok_or_else(|| io::Error::other(shown))
    }

    /// The device, and the packets of it that are looked at.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::OfRight => ("right", "ingress"),
            Self::OfLeft => ("left", "egress"),
        }
    }
}

fn tc(arguments: &str) -> io::Result<Finished> {
    let finished = Client::new("tc").args(arguments.split_whitespace()).run();
    let finished = finished.map_err(io::Error::other)?;
    match finished.status.success() {
        true => Ok(finished),
        false => Err(io::Error::other(finished.to_string())),
    }
}
