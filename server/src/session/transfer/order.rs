//! A transfer as a command orders it: the plan for the data node, and what the client demands of a stored file.

use gridhaul_protocol::command::{Checksum, Representation};
use gridhaul_protocol::negotiated::{NextTransfer, Terms};
use gridhaul_protocol::path::RemotePath;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{Placement, Plan, Task, UploadName};
use jiff::Timestamp;

use super::motion::Motion;
use crate::group_limits;
use crate::session::call::Call;
use crate::session::listing::{Style, line_source};
use crate::status::TransferDirection;
use crate::transfer_verb::TransferVerb;

#[derive(Debug)]
pub(super) struct Order {
    pub(super) verb: TransferVerb,
    /// The file or directory.
    pub(super) path: RemotePath,
    pub(super) plan: Plan,
    /// The server chose the name of the file, and the first reply carries it.
    pub(super) tells_name: bool,
    pub(super) demands: Demands,
}

/// What a client demands of a stored file besides its bytes. Empty for an upload with a temporary name.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// The checksums that it must have, from `SCKS` and `SITE STORATTR`.
    pub(super) checksums: Vec<(ChecksumAlgorithm, Checksum)>,
    /// The time of the last change that it gets, from `SITE STORATTR`.
    pub(super) modified: Option<Timestamp>,
}

impl Demands {
    /// The algorithms were checked when the commands came.
    fn new(pending: &NextTransfer) -> Self {
        let announced = [&pending.expected, &pending.attributes.checksum];
        let checksums = announced
            .into_iter()
            .flatten()
            .filter_map(|(algorithm, checksum)| {
                Some((algorithm.as_str().parse().ok()?, checksum.clone()))
            });
        Self {
            checksums: checksums.collect(),
            modified: pending.attributes.modified,
        }
    }

    fn for_node(self) -> gridhaul_transfer::Demands {
        let checksums = self.checksums.into_iter();
        gridhaul_transfer::Demands {
            checksums: checksums
                .map(|(algorithm, expected)| (algorithm, expected.as_str().to_owned()))
                .collect(),
            modified: self.modified.map(Into::into),
            consent: None,
        }
    }
}

impl Order {
    /// The transfer that a command asks for under the negotiated terms.
    ///
    /// # Errors
    ///
    /// When an argument does not make a path.
    pub(super) fn new(
        call: &Call<'_>,
        verb: TransferVerb,
        motion: &Motion,
        terms: Terms,
    ) -> Result<Self, StorageError> {
        let (mode, representation) = (terms.mode, terms.representation);
        let mut demands = Demands::new(&terms.pending);
        let (path, task) = task(call, motion, representation, terms.pending)?;
        let mut handling = call.context.config().handling.clone();
        for (algorithm, _) in &demands.checksums {
            if !handling.checksums.contains(algorithm) {
                handling.checksums.push(*algorithm);
            }
        }
        handling.bandwidth = group_limits::bandwidth(&call.user.groups);
        if matches!(task, Task::ReceiveFile { .. }) {
            handling.upload = call.user.uploads;
            if handling.upload == UploadName::Temporary {
                // The node checks them, before the file gets its final name.
                handling.demands = std::mem::take(&mut demands).for_node();
            }
        }
        let settings = call.negotiated.settings();
        let plan = Plan {
            // Lines of listings end with CRLF already.
            representation: match task {
                Task::SendLines(_) => Representation::Image,
                _ => representation,
            },
            task,
            mode,
            parallelism: settings.parallelism,
            layout: settings.layout,
            handling,
            share: None,
        };
        Ok(Self {
            verb,
            path,
            plan,
            tells_name: matches!(motion, Motion::ReceiveNew { .. }),
            demands,
        })
    }

    pub(super) fn receives(&self) -> bool {
        matches!(self.plan.task, Task::ReceiveFile { .. })
    }

    pub(super) fn direction(&self) -> TransferDirection {
        match self.plan.task {
            Task::SendFile { .. } => TransferDirection::Send,
            Task::ReceiveFile { .. } | Task::ReceiveBytes(_) => TransferDirection::Receive,
            Task::SendLines(_) => TransferDirection::List,
        }
    }

    pub(super) fn lists(&self) -> bool {
        matches!(self.plan.task, Task::SendLines(_))
    }
}

fn task(
    call: &Call<'_>,
    motion: &Motion,
    representation: Representation,
    pending: NextTransfer,
) -> Result<(RemotePath, Task), StorageError> {
    let user = &call.user;
    let NextTransfer {
        restart, promised, ..
    } = pending;
    // The lengths of converted text are not those of the file.
    let promised = promised.filter(|_| representation == Representation::Image);
    Ok(match motion {
        Motion::Send {
            path,
            offset,
            length,
        } => {
            let path = user.path(Some(path))?;
            let task = Task::SendFile {
                path: path.as_path().to_owned(),
                offset: *offset,
                length: *length,
                restart,
            };
            (path, task)
        }
        Motion::Receive { path, placement } => {
            let path = user.path(Some(path))?;
            let task = receive(&path, *placement, restart, promised);
            (path, task)
        }
        Motion::ReceiveNew { path } => {
            let path = user.new_path(path.as_ref())?;
            let task = receive(&path, Placement::Replace, restart, promised);
            (path, task)
        }
        Motion::List { path: given, form } => {
            let path = user.path(given.as_ref())?;
            let style = Style {
                form: *form,
                facts: call.negotiated.settings().facts,
            };
            let listers = call.context.shared.threads.listers(&user.source);
            let lines = (user.node.storage(), listers);
            let lines = line_source(lines, style, path.clone(), given.clone());
            (path, Task::SendLines(lines))
        }
    })
}

fn receive(
    path: &RemotePath,
    placement: Placement,
    restart: RangeSet,
    promised: Option<u64>,
) -> Task {
    Task::ReceiveFile {
        path: path.as_path().to_owned(),
        placement,
        restart,
        promised,
    }
}
