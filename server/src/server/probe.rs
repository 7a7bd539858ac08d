//! What the drivers find out about their devices when the server starts, for administrators.

use std::io;
use std::sync::Arc;
use std::thread;

use gridhaul_stack::{Finding, Standing};

use crate::shared::Shared;
use crate::status::{RdmaState, RdmaStatus};

/// Checks the devices of the drivers that data channels may use, once, in a thread: it opens devices and takes a while.
///
/// # Errors
///
/// When there is no thread.
pub(super) fn probe_devices(shared: &Arc<Shared>) -> io::Result<()> {
    let config = shared.settings().config;
    let mut drivers = shared.registry.drivers();
    if !drivers.any(|driver| driver.has_devices() && config.data.may_use(driver.name())) {
        return Ok(());
    }
    let shared = Arc::clone(shared);
    let probe = move || {
        let drivers = shared.registry.drivers();
        let drivers =
            drivers.filter(|driver| driver.has_devices() && config.data.may_use(driver.name()));
        let findings = drivers.flat_map(|driver| driver.check_devices());
        let devices = findings.map(status).collect();
        // Only this thread sets them.
        let _ = shared.devices.set(devices);
    };
    thread::Builder::new()
        .name("gridhaul-probe".to_owned())
        .spawn(probe)?;
    Ok(())
}

/// The text of a finding begins with its subject: a device, or a limit.
fn status(finding: Finding) -> RdmaStatus {
    let (device, text) = match finding.text.split_once(": ") {
        Some((device, text)) => (device.to_owned(), text.to_owned()),
        None => (finding.about.to_owned(), finding.text),
    };
    RdmaStatus {
        device,
        state: match finding.standing {
            Standing::Good | Standing::Unknown => RdmaState::Ok,
            Standing::Bad => RdmaState::Unusable,
        },
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_named_by_its_subject() {
        let finding = |text: &str, is_good| Finding {
            about: "rdma",
            standing: Standing::of(is_good),
            text: text.to_owned(),
        };
        let device = status(finding("device rxe0: port 1 is down: plug it in", false));
        assert_eq!(device.device, "device rxe0");
        assert_eq!(device.state, RdmaState::Unusable);
        assert_eq!(device.text, "port 1 is down: plug it in");
        let other = status(finding("no device", true));
        assert_eq!(
            (other.device.as_str(), other.state),
            ("rdma", RdmaState::Ok)
        );
    }
}
