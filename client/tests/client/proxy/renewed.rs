//! Proxies that are renewed while files are copied.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gridhaul_interop::{Kind, UserKind};

use super::user::{User, pki};
use crate::leftovers;
use crate::site::Site;

#[test]
fn the_next_session_uses_the_proxy_that_is_there_then() {
    let (site, user) = (Site::gsi(Kind::Gridhaul, &[]), User::new());
    let first = fs::read(&pki().user(UserKind::Plain).credential).unwrap();
    let second = pki().user(UserKind::Second);
    let proxy = user.write("proxy", first);
    let renewed = user.write("renewed", fs::read(&second.credential).unwrap());
    fs::write(site.local("other"), "other").unwrap();
    // Once the first file is there, the connection breaks, and the next session belongs to the second one.
    let (served, has_broken) = (site.served("source"), AtomicBool::new(false));
    let in_place = proxy.clone();
    let relay = leftovers::Proxy::start(
        site.server.address(),
        Box::new(move |_| {
            if !served.exists() || has_broken.swap(true, Ordering::Relaxed) {
                return true;
            }
            fs::rename(&renewed, &in_place).unwrap();
            false
        }),
    );
    // The certificate of the server is that of a name.
    let [own, relayed] =
        [site.server.address(), relay.address].map(|one| format!(":{}/", one.port()));
    let url = site.server.url("").replace(&own, &relayed);
    let copy = ["copy", "-c", "1", "--mode", "stream", "source", "other"];
    let mut command = site.command(&[&copy[..], &[&url]].concat());
    command.envs(pki().environment_of(Path::new(&proxy)));
    // The second user need not be allowed to write there.
    command.output().unwrap();
    let log = site.server.log();
    let is_login = |line: &&str| line.contains("logged in") && line.contains("Bob Jones");
    assert_eq!(log.lines().filter(is_login).count(), 1, "{log}");
}
