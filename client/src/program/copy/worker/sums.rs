//! Checksums that only servers can compute.

use std::sync::Arc;

use gridhaul_protocol::command::AlgorithmName;

use super::super::super::report::Watch;
use super::super::error::CopyError;
use super::super::job::{Job, Place};
use super::super::present::Present;
use super::{Worker, open};
use crate::control::ControlError;
use crate::location::Url;
use crate::session::Session;
use crate::transfer::{FilePart, TransferFailure, Transferred};

impl Worker {
    /// Copies a file once, and compares the checksums of two servers if the user wants one that this machine cannot compute.
    pub(super) async fn attempt(
        &mut self,
        job: &Job,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let Some(algorithm) = &shared.arguments.checksum_of_servers else {
            return Box::pin(self.transfer(job, present, watch)).await;
        };
        let part = shared.arguments.part();
        // A server that does not have it refuses before anything is copied.
        let source_sum = match &job.source {
            Place::Remote(from) => {
                let session = open(&mut self.source, &shared, &from.server).await?;
                let sum = sum_of(session, from, algorithm, part).await?;
                Some(sum.map_err(CopyError::Source)?)
            }
            Place::Local { .. } => None,
        };
        let (Some(source_sum), Place::Remote(to)) = (source_sum, &job.destination) else {
            return Err(CopyError::OnlyServers(algorithm.as_str().to_owned()));
        };
        let done = Box::pin(self.transfer(job, present, watch)).await?;
        let session = open(&mut self.destination, &shared, &to.server).await?;
        let sum = sum_of(session, to, algorithm, part).await?;
        let destination_sum = sum.map_err(CopyError::Destination)?;
        if !source_sum.eq_ignore_ascii_case(&destination_sum) {
            let replaced = true;
            return Err(CopyError::from(TransferFailure::Checksum {
                source_sum,
                destination_sum,
                replaced,
            }));
        }
        Ok(Transferred {
            checksum: Some(source_sum),
            ..done
        })
    }
}

/// The outer error: the path.
async fn sum_of(
    session: &mut Session,
    url: &Url,
    algorithm: &AlgorithmName,
    part: Option<FilePart>,
) -> Result<Result<String, ControlError>, CopyError> {
    let (offset, length) = part.map_or((0, None), |part| (part.offset, part.length));
    let path = url.argument()?;
    Ok(session.checksum(algorithm, &path, offset, length).await)
}
