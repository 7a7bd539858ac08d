//! Transfers between two servers whose bytes go through this machine.

use std::sync::Arc;

use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::NodeSession;

use super::stream::ByteStream;
use super::third_party::compare;
use super::{FileCopy, Observer, TransferFailure, Transferred, Unobserved, two_party};
use crate::session::Session;

/// The copy of a file from a server through this machine to another server. Both transfers are in stream mode.
#[derive(Debug, Clone)]
pub struct RelayedCopy {
    /// From the source.
    pub get: FileCopy,
    /// To the destination.
    pub put: FileCopy,
    /// The checksum that both servers must agree about.
    pub verify: Option<ChecksumAlgorithm>,
}

/// Copies a file. `files` are the data channels of both transfers.
///
/// # Errors
///
/// When either server or this machine fails, or the servers do not agree about size or checksum.
pub async fn relay(
    source: &mut Session,
    destination: &mut Session,
    files: &[Arc<dyn NodeSession>; 2],
    copy: RelayedCopy,
    observer: &mut dyn Observer,
) -> Result<Transferred, TransferFailure> {
    let [output, input] = ByteStream::pipe().map_err(TransferFailure::Pipe)?;
    let RelayedCopy {
        mut get,
        mut put,
        verify,
    } = copy;
    get.stream = Some(output.clone());
    put.stream = Some(input.clone());
    let getting = async {
        let got = Box::pin(two_party(source, &files[0], &get, observer)).await;
        match got {
            Ok(_) => output.close(),
            // What has arrived must not look like the whole file.
            Err(_) => input.end(),
        }
        got
    };
    let putting = async {
        let put = Box::pin(two_party(destination, &files[1], &put, &mut Unobserved)).await;
        if put.is_err() {
            output.end();
        }
        put
    };
    let (got, stored) = tokio::join!(getting, putting);
    let mut done = match (got, stored) {
        (Ok(got), Ok(_)) => got,
        // The transfer that failed first has ended the other one on this machine.
        (Err(TransferFailure::Local(_)), Err(error)) | (Err(error), _) | (_, Err(error)) => {
            return Err(error);
        }
    };
    if let Some(algorithm) = verify {
        let paths = [&get.remote, &put.remote];
        let sum = compare(source, destination, paths, get.part, algorithm).await?;
        done.checksum = Some(sum);
    }
    Ok(done)
}
