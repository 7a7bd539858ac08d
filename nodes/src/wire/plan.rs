//! Plans of transfers.

use std::collections::BTreeSet;

use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{
    BandwidthLimit, Demands, Handling, LineSource, Placement, Plan, Role, Share, SyncPolicy, Task,
    UploadName,
};

use super::values::{self, WireError};
use crate::generated::{self as message, receive_file, transfer};

/// Policies of syncing. Their positions are sent.
const SYNC: [SyncPolicy; 3] = [SyncPolicy::None, SyncPolicy::Close, SyncPolicy::Data];

/// The most stripes of a transfer.
pub(super) const MAX_STRIPES: u32 = 4096;

/// The parts of a plan that stay at the control server.
#[derive(Default)]
pub(crate) struct KeptParts {
    pub(crate) lines: Option<LineSource>,
    pub(crate) companions: Option<std::sync::Arc<dyn gridhaul_transfer::Companions>>,
}

/// The parts of a plan that the node makes itself.
pub(crate) struct ToRestore {
    pub(crate) lines: LineSource,
    pub(crate) companions: std::sync::Arc<dyn gridhaul_transfer::Companions>,
}

/// A plan as a message, and what it cannot carry.
pub(crate) fn transfer(plan: &Plan) -> (message::Transfer, KeptParts) {
    let mut kept = KeptParts::default();
    let task = match &plan.task {
        Task::SendFile {
            path,
            offset,
            length,
            restart,
        } => Some(transfer::Task::SendFile(message::SendFile {
            path: values::path(path),
            offset: *offset,
            length: *length,
            restart: values::ranges(restart),
        })),
        Task::SendLines(source) => {
            kept.lines = Some(source.clone());
            Some(transfer::Task::SendLines(message::SendLines {}))
        }
        // A function of this process. The node refuses a transfer without a task.
        Task::ReceiveBytes(_) => None,
        Task::ReceiveFile {
            path,
            placement,
            restart,
            promised,
        } => Some(transfer::Task::ReceiveFile(message::ReceiveFile {
            path: values::path(path),
            placement: Some(match placement {
                Placement::Replace => receive_file::Placement::Replace(true),
                Placement::At(offset) => receive_file::Placement::At(*offset),
                Placement::Append => receive_file::Placement::Append(true),
            }),
            restart: values::ranges(restart),
            promised: *promised,
        })),
    };
    if let Some(Share {
        role: Role::Lead(companions),
        ..
    }) = &plan.share
    {
        kept.companions = Some(companions.clone());
    }
    let message = message::Transfer {
        task,
        extended: plan.mode == TransferMode::Extended,
        ascii: plan.representation == Representation::Ascii,
        parallelism: plan.parallelism.into(),
        layout_block_bytes: match plan.layout {
            StripeLayout::Partitioned => None,
            StripeLayout::Blocked { block_bytes } => Some(block_bytes),
        },
        handling: Some(handling(&plan.handling)),
        share: plan.share.as_ref().map(share),
    };
    (message, kept)
}

fn share(share: &Share) -> message::Share {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    message::Share {
        stripes: share.stripes.iter().copied().map(number).collect(),
        total: number(share.total),
        lead: matches!(share.role, Role::Lead(_)),
    }
}

fn handling(handling: &Handling) -> message::Handling {
    let sync = SYNC.iter().position(|sync| *sync == handling.sync);
    message::Handling {
        sync: sync
            .and_then(|sync| u32::try_from(sync).ok())
            .unwrap_or_default(),
        ordered: handling.ordered,
        sparse: handling.sparse,
        checksums: handling
            .checksums
            .iter()
            .map(|sum| sum.name().to_owned())
            .collect(),
        requested_checksums: handling.requested_checksums,
        temporary_name: handling.upload != UploadName::Final,
        demanded: sums(&handling.demands.checksums),
        demanded_modified: handling.demands.modified.map(values::time),
        rate: handling
            .bandwidth
            .iter()
            .filter_map(|limit| limit.rate())
            .min(),
        rate_may_change: !handling.bandwidth.is_empty(),
    }
}

pub(super) fn sums(sums: &[(ChecksumAlgorithm, String)]) -> Vec<message::DemandedChecksum> {
    sums.iter()
        .map(|(algorithm, value)| message::DemandedChecksum {
            algorithm: algorithm.name().to_owned(),
            value: value.clone(),
        })
        .collect()
}

pub(super) fn to_sums(
    sent: Vec<message::DemandedChecksum>,
) -> Result<Vec<(ChecksumAlgorithm, String)>, WireError> {
    sent.into_iter()
        .map(|sum| Ok((to_algorithm(&sum.algorithm)?, sum.value)))
        .collect()
}

pub(crate) fn to_algorithm(name: &str) -> Result<ChecksumAlgorithm, WireError> {
    name.parse()
        .map_err(|_| WireError::new("the name of a checksum that is not known here"))
}

/// The plan on the node.
pub(crate) fn to_plan(sent: message::Transfer, restore: ToRestore) -> Result<Plan, WireError> {
    let ToRestore { lines, companions } = restore;
    let task = match sent.task.ok_or_else(|| WireError::missing("task"))? {
        transfer::Task::SendFile(file) => Task::SendFile {
            path: values::to_path(&file.path)?,
            offset: file.offset,
            length: file.length,
            restart: values::to_ranges(&file.restart)?,
        },
        transfer::Task::SendLines(_) => Task::SendLines(lines),
        transfer::Task::ReceiveFile(file) => Task::ReceiveFile {
            path: values::to_path(&file.path)?,
            placement: match file.placement {
                Some(receive_file::Placement::Replace(_)) => Placement::Replace,
                Some(receive_file::Placement::At(offset)) => Placement::At(offset),
                Some(receive_file::Placement::Append(_)) => Placement::Append,
                None => return Err(WireError::missing("placement")),
            },
            restart: values::to_ranges(&file.restart)?,
            promised: file.promised,
        },
    };
    Ok(Plan {
        task,
        mode: if sent.extended {
            TransferMode::Extended
        } else {
            TransferMode::Stream
        },
        representation: if sent.ascii {
            Representation::Ascii
        } else {
            Representation::Image
        },
        parallelism: match u8::try_from(sent.parallelism) {
            Ok(channels @ 1..=64) => channels,
            _ => return Err(WireError(format!("the parallelism {}", sent.parallelism))),
        },
        layout: match sent.layout_block_bytes {
            None => StripeLayout::Partitioned,
            Some(0) => return Err(WireError::new("blocks of 0 bytes")),
            Some(block_bytes) => StripeLayout::Blocked { block_bytes },
        },
        handling: to_handling(sent.handling.unwrap_or_default())?,
        share: sent
            .share
            .map(|share| to_share(share, companions))
            .transpose()?,
    })
}

fn to_share(
    sent: message::Share,
    companions: std::sync::Arc<dyn gridhaul_transfer::Companions>,
) -> Result<Share, WireError> {
    // Distinct, because a node with as many stripes as the whole transfer serves all of it.
    let distinct: BTreeSet<_> = sent.stripes.iter().collect();
    let is_wrong = sent.total == 0
        || sent.total > MAX_STRIPES
        || sent.stripes.is_empty()
        || distinct.len() != sent.stripes.len()
        || distinct.last().is_some_and(|last| **last >= sent.total);
    if is_wrong {
        return Err(WireError(format!(
            "the stripes {:?} of {}",
            sent.stripes, sent.total
        )));
    }
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Share {
        stripes: sent.stripes.into_iter().map(number).collect(),
        total: number(sent.total),
        role: if sent.lead {
            Role::Lead(companions)
        } else {
            Role::Member
        },
    })
}

fn to_handling(sent: message::Handling) -> Result<Handling, WireError> {
    let sync = usize::try_from(sent.sync)
        .ok()
        .and_then(|sync| SYNC.get(sync));
    Ok(Handling {
        sync: *sync.ok_or_else(|| WireError(format!("the sync policy {}", sent.sync)))?,
        ordered: sent.ordered,
        sparse: sent.sparse,
        checksums: sent
            .checksums
            .iter()
            .map(|name| to_algorithm(name))
            .collect::<Result<_, _>>()?,
        requested_checksums: sent.requested_checksums,
        upload: if sent.temporary_name {
            UploadName::Temporary
        } else {
            UploadName::Final
        },
        bandwidth: if sent.rate.is_some() || sent.rate_may_change {
            vec![BandwidthLimit::new(sent.rate)]
        } else {
            Vec::new()
        },
        demands: Demands {
            checksums: to_sums(sent.demanded)?,
            modified: sent.demanded_modified.map(values::to_time).transpose()?,
            consent: None,
        },
        frees_room: false,
        limit: None,
    })
}
