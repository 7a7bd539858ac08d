//! Logins of users with certificates who fetch one small file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::bench::files::Files;
use crate::bench::ports;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Sample, Unit};
use crate::bench::target::Target;
use crate::bench::testbed::{Place, RunError, Testbed};

/// The number of concurrent clients.
const CLIENTS: usize = 4;

#[derive(Debug)]
struct LogIn;

pub(super) fn rows() -> Vec<Row> {
    let description = "logins with delegation and a small file, 4 at a time";
    let row = Row::new(Group::Protected, "logins", description, Unit::Logins, LogIn);
    vec![row.target(Target::of_theirs(1.0))]
}

impl Work for LogIn {
    /// Each session is a new client program that fetches the same file.
    #[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no logins".to_owned()));
        };
        let [server, _] = testbed.servers(kind, Place::Certified)?;
        let from = server.url(testbed.name(Place::Certified, Files::Few)?) + "f00000";
        ports::wait_for_free()?;
        let logins = testbed.sizes.logins;
        let next = AtomicUsize::new(0);
        let client = || {
            while next.fetch_add(1, Ordering::Relaxed) < logins {
                let to = "file:///dev/null".to_owned();
                testbed.copy(Place::Certified, &["-nodcau"], from.clone(), to)?;
            }
            Ok(())
        };
        let start = Instant::now();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            clients.into_iter().try_for_each(|client| {
                let ended = client.join();
                ended.unwrap_or_else(|_| Err(RunError::Failed("a client panicked".to_owned())))
            })
        })?;
        Ok(Sample::new(logins as f64 / start.elapsed().as_secs_f64()))
    }
}
