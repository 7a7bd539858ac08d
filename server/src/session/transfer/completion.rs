//! The end of a transfer: its last replies, and the checks of a stored file.

use gridhaul_protocol::reply::Reply;
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{ChecksumRequest, Outcome};

use super::order::Order;
use super::running::Running;
use crate::session::call::Call;
use crate::session::end::End;
use crate::session::failure::Failure;
use crate::session::query::compute_checksum;
use crate::session::replies;
use crate::telemetry::FailureCause;

/// The last reply, and why a transfer failed, for the log and the metrics.
pub(super) type Conclusion = (Reply, Option<Failure>);

/// Sends the last markers, and checks what was stored.
pub(super) async fn conclude(
    call: &mut Call<'_>,
    order: &Order,
    running: &Running,
    outcome: Option<&Outcome>,
) -> Result<Conclusion, End> {
    running.send_last_markers(call, order.receives());
    match outcome.map(|outcome| (&outcome.result, &outcome.checksums)) {
        Some((Ok(()), arrived)) if !running.is_lost() => accept(call, order, arrived).await,
        Some((Ok(()), _)) => Ok(complete()),
        Some((Err(error), _)) => {
            let reply = if order.lists() {
                replies::listing_error(error)
            } else {
                replies::transfer_error(error)
            };
            Ok((reply, Some(error.into())))
        }
        None => {
            let error = "the data node is gone";
            let failure = Failure {
                text: error.to_owned(),
                cause: FailureCause::Server,
            };
            Ok((
                Reply::new(451, format!("Command failed. : {error}.")),
                Some(failure),
            ))
        }
    }
}

/// Checks the checksums of a stored file, and sets the time that the client named. `arrived` are the checksums that were
/// computed while the file arrived.
async fn accept(
    call: &mut Call<'_>,
    order: &Order,
    arrived: &[(ChecksumAlgorithm, String)],
) -> Result<Conclusion, End> {
    if !order.receives() {
        return Ok(complete());
    }
    for (algorithm, expected) in &order.demands.checksums {
        let computed = match arrived.iter().find(|(known, _)| known == algorithm) {
            Some((_, computed)) => Ok(computed.clone()),
            None => compute_whole(call, order, *algorithm).await?,
        };
        match computed {
            Ok(computed) if computed == expected.as_str() => {}
            Ok(computed) => {
                let reply = replies::wrong_checksum(&computed, expected.as_str());
                let error = "the checksum is not the one that was announced";
                let failure = Failure {
                    text: error.to_owned(),
                    cause: FailureCause::Peer,
                };
                return Ok((reply, Some(failure)));
            }
            Err(error) => return Ok(failed(&error)),
        }
    }
    if let Some(modified) = order.demands.modified {
        let path = order.path.clone();
        let set = call.work(move |files| files.node.set_modified(path.as_path(), modified.into()));
        if let Err(error) = set.await? {
            return Ok(failed(&error));
        }
    }
    Ok(complete())
}

/// The checksum of a stored file, computed from its content.
async fn compute_whole(
    call: &mut Call<'_>,
    order: &Order,
    algorithm: ChecksumAlgorithm,
) -> Result<Result<String, StorageError>, End> {
    call.control.flush().await?;
    let request = ChecksumRequest {
        path: order.path.as_path().to_owned(),
        algorithm,
        offset: 0,
        length: None,
    };
    compute_checksum(call, request).await
}

fn failed(error: &StorageError) -> Conclusion {
    (replies::storage_error(error), Some(error.into()))
}

fn complete() -> Conclusion {
    (Reply::new(226, "Transfer Complete."), None)
}
