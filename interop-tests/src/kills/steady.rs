//! A session that fetches a small file again and again.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::world::World;
use crate::support::raw::{GsiControl, Identity, connect_data};

/// How long a reply may take: a node that does not answer is found to be lost after 15 seconds.
const REPLY: Duration = Duration::from_secs(60);

/// A fetch that went wrong.
#[derive(Debug, thiserror::Error)]
#[error("at node {node:?}: {reason}")]
pub(super) struct Disturbance {
    /// The node that served it, if it was known.
    pub(super) node: Option<usize>,
    reason: String,
}

/// What a steady session has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) fetched: usize,
    pub(super) disturbances: Vec<Disturbance>,
}

/// Fetches the file `steady` until `stop`. After an error of a node the session goes on; after one of its control channel it ends.
pub(super) fn fetch(
    server: SocketAddr,
    identity: &Identity,
    expected: &[u8],
    stop: &AtomicBool,
) -> Seen {
    let mut seen = Seen::default();
    let mut control = match begin(server, identity) {
        Ok(control) => control,
        Err(error) => {
            seen.disturb(None, &error);
            return seen;
        }
    };
    while !stop.load(Ordering::Acquire) {
        let address = match control.passive() {
            Ok(address) => address,
            Err(error) => {
                seen.disturb(None, &error);
                return seen;
            }
        };
        let node = World::node_at(address);
        match once(&mut control, address) {
            Ok(bytes) if bytes == expected => seen.fetched += 1,
            Ok(bytes) => {
                let reason = format!("{} wrong bytes are called complete", bytes.len());
                seen.disturb(None, &io::Error::other(reason));
            }
            Err(error) => {
                seen.disturb(node, &error);
                if error.kind() != io::ErrorKind::Other {
                    return seen;
                }
            }
        }
    }
    let _ = control.command("QUIT");
    seen
}

fn begin(server: SocketAddr, identity: &Identity) -> io::Result<GsiControl> {
    let mut control = GsiControl::logged_in(server, identity)?;
    control.control().set_timeout(REPLY);
    control.must("DCAU N", 200)?;
    Ok(control)
}

/// An error reply has the kind [`io::ErrorKind::Other`]; the errors of the control channel have their own.
fn once(control: &mut GsiControl, address: SocketAddr) -> io::Result<Vec<u8>> {
    let began = Instant::now();
    control.send_line("RETR /steady")?;
    let mut bytes = Vec::new();
    let received = connect_data(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(REPLY))?;
        stream.read_to_end(&mut bytes)
    });
    let dialogue = control.dialogue()?;
    if !dialogue.last.is_success() {
        let after = began.elapsed().as_millis();
        return Err(io::Error::other(format!("after {after} ms: {dialogue}")));
    }
    received.map_err(|error| {
        let reason = format!("{error}, and the replies are: {dialogue}");
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })?;
    Ok(bytes)
}

impl Seen {
    fn disturb(&mut self, node: Option<usize>, error: &io::Error) {
        let reason = error.to_string();
        self.disturbances.push(Disturbance { node, reason });
    }
}
