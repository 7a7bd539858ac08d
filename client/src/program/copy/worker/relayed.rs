//! Copies between two servers whose bytes go through this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;

use super::super::super::report::Watch;
use super::super::error::CopyError;
use super::super::settings::how;
use super::super::shared::Shared;
use super::super::version::Version;
use super::transfers::quick;
use super::{Worker, open};
use crate::location::Url;
use crate::session::Session;
use crate::transfer::{Direction, FileCopy, RelayedCopy, Transferred, relay};

impl Worker {
    /// Copies a file as a stream from one server through this machine to another one.
    pub(super) async fn relayed(
        &mut self,
        from: &Url,
        to: &Url,
        known: Version,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        if from.is_same_file(to) {
            return Err(CopyError::Same);
        }
        let shared = Arc::clone(&self.shared);
        let (source_path, destination_path) = (from.argument()?, to.argument()?);
        let source = open(&mut self.source, &shared, &from.server).await?;
        let version = Version::of_source(source, &source_path, known).await?;
        let destination = open(&mut self.destination, &shared, &to.server).await?;
        let size = shared.bytes_of(version);
        let get = half(&shared, Direction::Get, source, &source_path, size);
        let put = half(
            &shared,
            Direction::Put,
            destination,
            &destination_path,
            size,
        );
        let root = Path::new("/");
        let files = [
            shared.files(root, source.admits(get.settings.protection))?,
            shared.files(root, destination.admits(put.settings.protection))?,
        ];
        let copy = RelayedCopy {
            get,
            put,
            verify: shared.arguments.checksum,
        };
        let RelayedCopy { get, .. } = &copy;
        watch.says(|| how(&get.settings, Some(&get.stack), &get.present));
        let done = relay(source, destination, &files, copy, watch).await?;
        if done.took > quick(source)
            && version.differs_from(&Version::of_facts(source, &source_path).await?)
        {
            return Err(CopyError::Changed);
        }
        self.keep_time(&destination_path, version).await?;
        Ok(done)
    }
}

/// The transfer with one of the servers.
fn half(
    shared: &Shared,
    direction: Direction,
    session: &Session,
    remote: &PathArgument,
    size: Option<u64>,
) -> FileCopy {
    FileCopy {
        direction,
        local: PathBuf::new(),
        stream: None,
        remote: remote.clone(),
        part: shared.arguments.part(),
        size,
        present: RangeSet::new(),
        settings: shared.settings_in(TransferMode::Stream, &[session]),
        stack: shared.arguments.data.channels.stack_here(),
        handling: shared.handling(),
        modified: None,
        verify: None,
        first_connection: None,
        stall: shared.arguments.data.channels.stall_timeout,
    }
}
