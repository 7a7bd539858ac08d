//! How many entries a message may have. A message is checked before anything of it is kept or waits.

use gridhaul_transfer::LOOK_AHEAD_FILES;

use super::plan::MAX_STRIPES;
use super::values::WireError;
use crate::generated::session_reply::Body as Reply;
use crate::generated::session_request::Body as Request;
use crate::generated::{self as message, transfer, transfer_event};
use crate::limits::{FACTS, LISTENERS, RANGES, RUN_ENTRIES};

/// Blocks of addresses in the admission of a session.
const BLOCKS: usize = 4096;

/// Drivers of a session.
const DRIVERS: usize = 16;

/// Checksums of a transfer.
const CHECKSUMS: usize = 64;

/// Checks a request of a control server.
pub(crate) fn check_request(body: &Request) -> Result<(), WireError> {
    match body {
        Request::Attach(attach) => {
            let blocks = attach.admission.as_ref();
            check("blocks", blocks.map_or(0, |all| all.blocks.len()), BLOCKS)
        }
        Request::Listen(listen) => check("drivers", listen.drivers.len(), DRIVERS),
        Request::Connect(connect) => {
            check("drivers", connect.drivers.len(), DRIVERS)?;
            check("peers", connect.peers.len(), STRIPES)
        }
        Request::LookAhead(ahead) => check("paths", ahead.paths.len(), LOOK_AHEAD_FILES),
        Request::Transfer(transfer) => check_transfer(transfer),
        Request::CompanionsDone(done) => check("ranges", done.stored.len(), RANGES),
        _ => Ok(()),
    }
}

/// Checks a reply of a node.
pub(crate) fn check_reply(body: &Reply) -> Result<(), WireError> {
    match body {
        Reply::Run(run) => check("entries", run.entries.len(), RUN_ENTRIES),
        Reply::Listening(listening) => check("addresses", listening.addresses.len(), LISTENERS),
        Reply::Transfer(event) => match &event.event {
            Some(transfer_event::Event::Moving(moving)) => {
                check("stripes", moving.stripes.len(), STRIPES)?;
                check("ranges", moving.received.len(), RANGES)?;
                check("peers", moving.peers.len(), FACTS)?;
                check("details", moving.details.len(), FACTS)
            }
            Some(transfer_event::Event::Finished(outcome)) => {
                check("peers", outcome.peers.len(), FACTS)?;
                check("details", outcome.details.len(), FACTS)?;
                check("checksums", outcome.checksums.len(), CHECKSUMS)
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

const STRIPES: usize = MAX_STRIPES as usize;

fn check_transfer(sent: &message::Transfer) -> Result<(), WireError> {
    let restart = match &sent.task {
        Some(transfer::Task::SendFile(file)) => file.restart.len(),
        Some(transfer::Task::ReceiveFile(file)) => file.restart.len(),
        Some(transfer::Task::SendLines(_)) | None => 0,
    };
    check("ranges", restart, RANGES)?;
    if let Some(handling) = &sent.handling {
        check("checksums", handling.checksums.len(), CHECKSUMS)?;
        check("checksums", handling.demanded.len(), CHECKSUMS)?;
    }
    let stripes = sent.share.as_ref().map_or(0, |share| share.stripes.len());
    check("stripes", stripes, STRIPES)
}

fn check(what: &str, count: usize, most: usize) -> Result<(), WireError> {
    if count <= most {
        return Ok(());
    }
    Err(WireError(format!("{count} {what}, more than {most}")))
}
