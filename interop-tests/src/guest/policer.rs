//! Drops what comes to the right end of a guest's cable beyond a rate and a burst, as policed circuits do.

use std::io;

use crate::{Client, Finished};

/// The end `right`, as the guest's devices are named.
const DEVICE: &str = "right";

/// Begins anew with a whole burst, and nothing dropped. Rate in bits per second, burst in bytes.
///
/// # Errors
///
/// When tc(8) fails.
pub fn police(rate: u64, burst: u64) -> io::Result<()> {
    // There may be none yet.
    let _ = tc(&format!("qdisc del dev {DEVICE} ingress"));
    tc(&format!("qdisc add dev {DEVICE} handle ffff: ingress"))?;
    // tc-police(8): without `mtu` it drops every packet of more than 2040 bytes.
    tc(&format!(
        "filter add dev {DEVICE} parent ffff: protocol all matchall action police rate {rate} \
         burst {burst} mtu 9100 conform-exceed drop/ok"
    ))?;
    Ok(())
}

/// Packets that were dropped since it began.
///
/// # Errors
///
/// When tc(8) fails, or says something else.
pub fn dropped() -> io::Result<u64> {
    let shown = tc(&format!("-s filter show dev {DEVICE} parent ffff:"))?.output();
    let count = shown
        .split("dropped ")
        .nth(1)
        .and_then(|rest| rest.split(',').next()?.parse().ok());
    count.ok_or_else(|| io::Error::other(shown))
}

fn tc(arguments: &str) -> io::Result<Finished> {
    let finished = Client::new("tc").args(arguments.split_whitespace()).run();
    let finished = finished.map_err(io::Error::other)?;
    match finished.status.success() {
        true => Ok(finished),
        false => Err(io::Error::other(finished.to_string())),
    }
}
