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

use crate::session::call::Call;
use crate::session::end::End;
use crate::session::files::{Files, Progress};
use crate::session::replies;
use crate::telemetry::Event;

pub(super) async fn answer_checksum(
    call: &mut Call<'_>,
    algorithm: &AlgorithmName,
    (offset, length): (u64, Option<u64>),
    path: &PathArgument,
) -> Result<Reply, End> {
    let Ok(algorithm) = algorithm.as_str().parse::<ChecksumAlgorithm>() else {
        return Ok(replies::unknown_algorithm());
    };
    call.control.flush().await?;
    let computed = match call.user.path(Some(path)) {
        Ok(path) => {
            let request = ChecksumRequest {
                path: path.as_path().to_owned(),
                algorithm,
                offset,
                length,
            };
            compute_checksum(call, request).await?
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

/// Computes a checksum. Concurrent checksums are limited, because each occupies a core for a long time. The client
/// gets markers at the interval that it asked for.
pub(crate) async fn compute_checksum(
    call: &mut Call<'_>,
    request: ChecksumRequest,
) -> Result<Result<String, StorageError>, End> {
    let checksums = &call.context.shared.checksums;
    let grant = checksums.take(&call.user.source, 1).granted();
    let done = Arc::new(AtomicU64::new(0));
    let interval = call.negotiated.settings().checksum_interval;
    let progress = interval.map(|interval| {
        let done = Arc::clone(&done);
        Progress::every(interval, move || marker(&done))
    });
    let algorithm = request.algorithm;
    let work = move |files: &Files, _grant| {
        let begun = Instant::now();
        let found = files.node.checksum(&request, &done, &files.cancel)?;
        Ok((found, begun.elapsed()))
    };
    let found = call.work_after(grant, progress, work).await?;
    Ok(found.map(|(found, took)| {
        call.context.publish(&Event::ChecksumFound {
            session: call.context.id,
            algorithm,
            found: &found,
            took,
        });
        found.value
    }))
}

fn marker(done: &AtomicU64) -> Reply {
    let marker = ChecksumMarker {
        timestamp: Timestamp::now(),
        bytes: done.load(Ordering::Relaxed),
    };
    marker.reply()
}
