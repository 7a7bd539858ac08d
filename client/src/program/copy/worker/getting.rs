//! Files from a server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_storage::UploadForm;
use gridhaul_transfer::{Demands, Handling, NodeSession, UploadName};

use super::super::super::report::Watch;
use super::super::error::CopyError;
use super::super::job::Job;
use super::super::present::{Present, small};
use super::super::settings::how;
use super::super::shared::Shared;
use super::super::special;
use super::super::streams::Metered;
use super::super::version::Version;
use super::found::{Content, search_more, size_here};
use super::transfers::{Local, form, quick};
use super::{Worker, open};
use crate::location::Url;
use crate::session::TransferSettings;
use crate::transfer::{Direction, FileCopy, TransferFailure, Transferred, two_party};

/// How long the first connection of a server to this machine may take: that of a firewall that drops packets never comes. The
/// kernel sends a lost packet again after 1 s and 3 s.
const FIRST_CONNECTION: Duration = Duration::from_secs(4);

impl Worker {
    /// Gets a file: in MODE E if that gains something and the server reaches this machine, else as a stream.
    pub(super) async fn get(
        &mut self,
        from: &Url,
        to: &Local<'_>,
        job: &Job,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let server = &from.server;
        let session = open(&mut self.source, &shared, server).await?;
        let (mut settings, mut tries) = shared.settings_of_get(session, job.is_only);
        if let Some(mode) = shared.mode_of_begun(present.earlier_mode()) {
            (settings, tries) = (shared.settings_in(mode, &[session]), false);
        }
        if !tries {
            return self
                .get_with(settings, None, (from, to, job), present, watch)
                .await;
        }
        let (noting, reached) = (Arc::clone(&shared), server.clone());
        watch.tell_connected(Box::new(move || noting.reach.note(&reached, true)));
        let first = Some(FIRST_CONNECTION);
        let tried = self
            .get_with(settings, first, (from, to, job), present, watch)
            .await;
        let words = match &tried {
            Err(CopyError::Transfer(failure))
                if matches!(**failure, TransferFailure::Unreachable(_)) =>
            {
                failure.to_string()
            }
            _ => {
                shared.reach.forget_trial(server);
                return tried;
            }
        };
        shared.reach.note(server, false);
        shared
            .report
            .notes(&format!("{server}: {words}; files are got as streams"));
        // The server may still try.
        (self.source, self.files) = (None, None);
        let session = open(&mut self.source, &shared, server).await?;
        let (settings, _) = shared.settings_of_get(session, job.is_only);
        self.get_with(settings, None, (from, to, job), present, watch)
            .await
    }

    /// Gets a file. One that an earlier attempt has received is not got again, if the source is still the same.
    async fn get_with(
        &mut self,
        settings: TransferSettings,
        first_connection: Option<Duration>,
        (from, to, job): (&Url, &Local<'_>, &Job),
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let remote = from.argument()?;
        let session = open(&mut self.source, &shared, &from.server).await?;
        let started = Instant::now();
        let version = Version::of_source(session, &remote, job.known).await?;
        let quick = quick(session);
        present.begins(version, settings.mode);
        let earlier = present.received();
        let done = match &earlier {
            Some(done) => done.clone(),
            None => {
                self.receive(settings, first_connection, (from, to), present, watch)
                    .await?
            }
        };
        if started.elapsed() > quick || earlier.is_some() || !present.restart().is_empty() {
            // If the server has failed, the next attempt asks it.
            present.is_received(&done);
            let session = open(&mut self.source, &shared, &from.server).await?;
            if version.differs_from(&Version::of_facts(session, &remote).await?) {
                return Err(CopyError::Changed);
            }
        }
        Ok(done)
    }

    async fn receive(
        &mut self,
        mut settings: TransferSettings,
        first_connection: Option<Duration>,
        (from, to): (&Url, &Local<'_>),
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let remote = from.argument()?;
        let version = present.version();
        let session = open(&mut self.source, &shared, &from.server).await?;
        let hosts = session.admits(settings.protection);
        let is_null = special::is_null(to.path);
        let files = match is_null {
            true => shared.discarding(to.root, hosts)?,
            false => self.files(to.root, hosts)?,
        };
        self.reconcile(settings.mode, (from, &remote), to, &files, present)
            .await?;
        watch.begins(settings.mode, present.ranges());
        check_special(to.path, shared.arguments.checksum.is_some())?;
        let way = (Some(from.server.clone()), None);
        let flight = shared.begin(&way, &mut settings);
        let copy = FileCopy {
            direction: Direction::Get,
            local: to.beneath.to_owned(),
            stream: None,
            remote,
            part: shared.arguments.part(),
            size: shared.bytes_of(version),
            present: present.restart(),
            stack: shared.stack_here(&settings),
            settings,
            handling: handling(&shared, version, is_null),
            modified: None,
            verify: shared.arguments.checksum,
            first_connection,
            stall: shared.stall(),
        };
        watch.says(|| how(&copy.settings, Some(&copy.stack), &copy.present));
        let session = open(&mut self.source, &shared, &from.server).await?;
        let mut metered = Metered {
            flight,
            observer: watch,
        };
        Ok(two_party(session, &files, &copy, &mut metered).await?)
    }

    /// Forgets what is present of a file unless it is at its place, and finds what has arrived in blocks beyond what was recorded.
    async fn reconcile(
        &mut self,
        mode: TransferMode,
        (from, remote): (&Url, &PathArgument),
        to: &Local<'_>,
        files: &Arc<dyn NodeSession>,
        present: &mut Present,
    ) -> Result<(), CopyError> {
        let form = form(mode);
        let version = present.version();
        let size = size_here(to.path, form)
            .filter(|size| Some(*size) <= version.size && present.ranges().end() <= *size);
        match (size, form.unfinished(to.beneath)) {
            (Some(size), Some(temporary))
                if form == UploadForm::Blocks && present.may_have_more() =>
            {
                let stall = self.shared.stall();
                let session = open(&mut self.source, &self.shared, &from.server).await?;
                let there = Content::There(session, remote.clone());
                let here = Content::Here(files, &temporary);
                Box::pin(search_more(present, size, there, here, stall)).await;
            }
            // What has arrived of a stream is recorded without gaps.
            (Some(_), Some(_)) => {}
            // A restart would continue a file with the name of the copy, or leave the end of a longer one.
            _ => present.forget(),
        }
        Ok(())
    }
}

/// Refuses devices and pipes, except the null device, of which there is no checksum.
fn check_special(path: &Path, is_verified: bool) -> Result<(), CopyError> {
    let name = || path.display().to_string();
    match (special::is_special(path), special::is_null(path)) {
        (true, false) => Err(CopyError::Special(name())),
        (true, true) if is_verified => Err(CopyError::Unverifiable(name())),
        _ => Ok(()),
    }
}

/// How the local file is written.
fn handling(shared: &Shared, version: Version, is_null: bool) -> Handling {
    // No program sees a part of a file under its name, unless the user asks for that.
    let is_final = is_null || shared.arguments.part().is_some();
    let keeps_times = shared.arguments.keeps_times() && !is_null;
    Handling {
        upload: match is_final {
            true => UploadName::Final,
            false => UploadName::Temporary,
        },
        frees_room: small(version).is_some(),
        demands: Demands {
            modified: version.modified.filter(|_| keeps_times),
            ..Demands::default()
        },
        ..shared.handling()
    }
}
