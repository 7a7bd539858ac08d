//! `CKSM`: checksums of files and of parts of files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gridhaul_protocol::command::AlgorithmName;
use gridhaul_protocol::marker::ChecksumMarker;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::ChecksumRequest;
use jiff::Timestamp;
use rustix::io::Errno;

use super::control::Control;
use super::files::{Files, News};
use super::{End, Session, User, replies};
use crate::telemetry::Event;

impl Session {
    pub(super) async fn checksum(
        &mut self,
        control: &mut Control,
        user: &User,
        algorithm: &AlgorithmName,
        (offset, length): (u64, Option<u64>),
        path: &PathArgument,
    ) -> Result<Reply, End> {
        let Ok(algorithm) = algorithm.as_str().parse::<ChecksumAlgorithm>() else {
            return Ok(unknown_algorithm());
        };
        control.flush().await?;
        let computed = match user.path(Some(path)) {
            Ok(path) => {
                let request = ChecksumRequest {
                    path: path.as_path().to_owned(),
                    algorithm,
                    offset,
                    length,
                };
                self.compute(control, user, request).await?
            }
            Err(error) => Err(error),
        };
        Ok(match computed {
            Ok(checksum) => Reply::new(213, checksum),
            Err(error) if error.errno == Errno::CANCELED => {
                Reply::new(426, "The checksum was aborted.")
            }
            Err(error) => replies::checksum_error(path, &error),
        })
    }

    /// Computes a checksum. Few of them are computed at a time: each takes a core for long. The client hears
    /// how far it is as often as it asked for.
    pub(super) async fn compute(
        &mut self,
        control: &mut Control,
        user: &User,
        request: ChecksumRequest,
    ) -> Result<Result<String, StorageError>, End> {
        let turn = self.shared.checksums.take(&user.source, 1).granted();
        let done = Arc::new(AtomicU64::new(0));
        let interval = self.negotiated.settings().checksum_interval;
        let news = interval.map(|interval| {
            let done = Arc::clone(&done);
            News::every(interval, move || marker(&done))
        });
        let algorithm = request.algorithm;
        let work = move |files: &Files, _turn| {
            let begun = Instant::now();
            let found = files.node.checksum(&request, &done, &files.cancel)?;
            Ok((found, begun.elapsed()))
        };
        let found = self.work_in_turn(control, user, turn, news, work).await?;
        Ok(found.map(|(found, took)| {
            self.shared.journal.publish(&Event::ChecksumFound {
                session: self.id,
                algorithm,
                found: &found,
                took,
            });
            found.value
        }))
    }
}

fn marker(done: &AtomicU64) -> Reply {
    let marker = ChecksumMarker {
        timestamp: Timestamp::now(),
        bytes: done.load(Ordering::Relaxed),
    };
    marker.reply()
}

/// As observed from globus-gridftp-server 13.24, with the names there are.
pub(super) fn unknown_algorithm() -> Reply {
    let names: Vec<_> = ChecksumAlgorithm::ALL
        .iter()
        .map(|algorithm| algorithm.name())
        .collect();
    Reply::new(
        500,
        format!(
            "Unknown checksum algorithm requested. There are: {}.",
            names.join(", ")
        ),
    )
}
