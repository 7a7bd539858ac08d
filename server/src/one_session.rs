//! The runtime of a program that serves one session, which another program has accepted: sshd, inetd or xinetd.

use std::io;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::serve::ServeError;
use crate::server::{PreparedServer, Server};

/// Serves the session that `begin` begins until it ends, or SIGTERM. Without a session it returns at once.
///
/// # Errors
///
/// When the runtime, the server or the session cannot begin.
pub(crate) fn serve(
    server: PreparedServer,
    begin: impl FnOnce(&Server) -> io::Result<Option<JoinHandle<()>>>,
) -> Result<(), ServeError> {
    /// The program does not wait longer for a thread that reads standard input or is stuck in a file system.
    const LAST_THREADS: Duration = Duration::from_millis(100);

    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let server = server.start()?;
        let Some(mut session) = begin(&server)? else {
            return Ok(());
        };
        tokio::select! {
            _ = &mut session => {}
            _ = terminate.recv() => {
                server.shut_down(std::future::pending()).await;
            }
        }
        Ok(())
    });
    runtime.shutdown_timeout(LAST_THREADS);
    served
}
