//! The present addresses of this machine's interfaces.
//!
//! Interfaces may change while a server runs, so getifaddrs(3) asks the kernel over a netlink socket on demand. The result
//! is used for a second, so that clients cannot keep the server busy with it.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;

/// The lifetime of a result.
const LIFETIME: Duration = Duration::from_secs(1);

/// The addresses of this machine's interfaces.
#[derive(Debug, Default)]
pub(crate) struct OwnAddresses {
    found: Mutex<Option<Found>>,
}

#[derive(Debug)]
struct Found {
    at: Instant,
    addresses: Arc<[IpAddr]>,
}

impl OwnAddresses {
    /// The addresses, at most a second old.
    ///
    /// # Errors
    ///
    /// The OS error, when the kernel does not answer.
    pub(crate) fn now(&self) -> io::Result<Arc<[IpAddr]>> {
        self.at(Instant::now(), look_up)
    }

    fn at(
        &self,
        now: Instant,
        look_up: impl FnOnce() -> io::Result<Vec<IpAddr>>,
    ) -> io::Result<Arc<[IpAddr]>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found
            .as_ref()
            .filter(|found| now.saturating_duration_since(found.at) < LIFETIME)
        {
            return Ok(Arc::clone(&found.addresses));
        }
        // A failed attempt is not kept.
        *found = None;
        let addresses: Arc<[IpAddr]> = look_up()?.into();
        *found = Some(Found {
            at: now,
            addresses: Arc::clone(&addresses),
        });
        Ok(addresses)
    }
}

fn look_up() -> io::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    Ok(addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found() {
        let addresses = OwnAddresses::default().now().expect("the kernel tells");
        let loopback: IpAddr = [127, 0, 0, 1].into();
        assert!(addresses.contains(&loopback), "{addresses:?}");
    }

    #[test]
    fn new_addresses_count_after_a_second() {
        let own = OwnAddresses::default();
        let [old, new]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let start = Instant::now();
        let at = |after: Duration, addresses: Vec<IpAddr>| {
            own.at(start + after, || Ok(addresses))
                .expect("found")
                .to_vec()
        };
        assert_eq!(at(Duration::ZERO, vec![old]), [old]);
        assert_eq!(at(LIFETIME / 2, vec![new]), [old]);
        assert_eq!(at(LIFETIME, vec![new]), [new]);
    }

    #[test]
    fn a_failure_leaves_nothing_to_believe() {
        let own = OwnAddresses::default();
        let start = Instant::now();
        own.at(start, || Ok(vec![[192, 0, 2, 1].into()]))
            .expect("found");
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        own.at(start + LIFETIME, refused).expect_err("refused");
        own.at(start, refused).expect_err("still refused");
    }
}
