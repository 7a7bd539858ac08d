//! Sessions of clients that the front process hands over.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridhaul_protocol::reply::Reply;
use tokio::runtime::Handle;
use tracing::{error, warn};

use crate::handover::{Arrived, Front, Guest, Handed, HandedProtection, Serving};
use crate::session::Session;
use crate::shared::Shared;
use crate::shutdown::{PhaseWatch, WeakShutdown};
use crate::telemetry::{Event, tell};

/// Begins to serve the clients that the front process hands over. Must be called in a runtime.
///
/// # Errors
///
/// When there is no thread.
pub(super) fn start(
    serving: Serving,
    shared: &Arc<Shared>,
    shutdown: WeakShutdown,
) -> io::Result<Front> {
    let (runtime, limited) = (Handle::current(), Arc::clone(shared));
    let most = move || limited.settings().config.limits.connections;
    let (serves, tells) = (Arc::clone(shared), Arc::clone(shared));
    let take = move |handed, descriptors, guest| {
        // A server that is shutting down accepts no more clients.
        if let Some(phase) = shutdown.watch() {
            let _inside = runtime.enter();
            take_over(&serves, phase, handed, descriptors, guest);
        }
    };
    let refused = move |refusal| tells.journal.refusals.add(refusal);
    let (refuses, inside) = (Arc::clone(shared), Handle::current());
    let turn_away = move |handed: &Handed, descriptors: Vec<OwnedFd>| {
        let _inside = inside.enter();
        refuse(&refuses, handed, descriptors);
    };
    serving.start(most, take, turn_away, refused)
}

/// Refuses a client that cannot be served. Where the connection is protected, the client only sees that it is closed. Must be
/// called in a runtime.
fn refuse(shared: &Shared, handed: &Handed, descriptors: Vec<OwnedFd>) {
    const REASON: &str = "Service busy: this client cannot be served";

    let connection = descriptors.into_iter().next().map(Arrived::new);
    let Some(Ok(Arrived { stream, peer, .. })) = connection else {
        return;
    };
    shared.journal.publish(&Event::ConnectionRefused {
        peer,
        reason: REASON,
    });
    if matches!(handed.protection, HandedProtection::Clear) {
        let text = format!("{REASON}. Please try again later. Closing control connection.");
        // A client whose receive buffer is full already gets no reply.
        let _ = stream.try_write(&Reply::new(421, text).encode());
    }
}

/// Starts the session of a client. Must be called in a runtime.
fn take_over(
    shared: &Arc<Shared>,
    phase: PhaseWatch,
    handed: Handed,
    descriptors: Vec<OwnedFd>,
    guest: Guest,
) {
    // The kernel leaves out a descriptor for which the process has no room.
    let Some(connection) = descriptors.into_iter().next() else {
        if let Some(untold) = tell("descriptors for clients") {
            error!(
                untold,
                "too many open files: a client cannot be served: raise LimitNOFILE of the service, or lower max-connections"
            );
        }
        return;
    };
    match Arrived::new(connection) {
        Ok(Arrived {
            stream,
            peer,
            local,
        }) => {
            let shared = Arc::clone(shared);
            let session = Session::of_guest(shared, phase, handed.session, (peer, local), guest);
            tokio::spawn(session.run_handed(stream, handed));
        }
        // The client has closed the connection.
        Err(error) => {
            if let Some(untold) = tell("clients that are gone") {
                warn!(session = handed.session, %error, untold, "a client cannot be served");
            }
        }
    }
}
