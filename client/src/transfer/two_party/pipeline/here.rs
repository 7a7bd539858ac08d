//! The transfers of a pipeline on this machine, one at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use gridhaul_transfer::{Answer, CancelReason, NodeSession, Outcome, UploadName};
use tokio::time::timeout;

use super::super::super::local_end::{LocalTransfer, Sums};
use super::super::super::stall::FAREWELL;
use super::super::super::{TransferFailure, verify};
use super::super::{Direction, FileCopy};
use super::flight::Flight;

/// Received files of at most this size arrive in the buffers of the kernel, so they are stored when the server has confirmed them.
const BUFFERED: u64 = 16 << 10;

/// The end of a pipeline on this machine.
pub(super) struct HereEnd<'a> {
    files: &'a Arc<dyn NodeSession>,
    /// There are data channels. Before, the server may wait for a handshake with this machine.
    are_open: bool,
    /// The transfer here, which is that of the last file that was started.
    running: Option<LocalTransfer>,
    /// It waits for consent, and has these checksums.
    arrived: Option<Sums>,
}

/// What the transfer here does.
pub(super) enum Here {
    /// The file has arrived, and waits for consent.
    Arrived(Sums),
    Ended(Result<Box<Outcome>, TransferFailure>),
}

impl<'a> HereEnd<'a> {
    pub(super) fn new(files: &'a Arc<dyn NodeSession>, are_open: bool) -> Self {
        Self {
            files,
            are_open,
            running: None,
            arrived: None,
        }
    }

    /// The transfer under way.
    pub(super) fn running(&self) -> Option<&LocalTransfer> {
        self.running.as_ref()
    }

    /// Waits for the transfer here. For ever if there is none. Can be given up and called again.
    pub(super) async fn next(&mut self) -> Here {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        tokio::select! {
            sums = running.arrival.next() => Here::Arrived(sums),
            outcome = &mut running.finished => {
                Here::Ended(outcome.map(Box::new).map_err(|_| TransferFailure::Lost))
            }
        }
    }

    /// Notes that the file waits for consent.
    pub(super) fn arrived(&mut self, sums: Sums) {
        self.arrived = Some(sums);
    }

    /// Starts the next file here, if there is none under way.
    pub(super) fn start(
        &mut self,
        flights: &mut VecDeque<Flight>,
    ) -> Result<bool, TransferFailure> {
        if self.running.is_some() {
            return Ok(false);
        }
        let Some(flight) = flights.iter_mut().find(|flight| !flight.is_started) else {
            return Ok(false);
        };
        let copy = &flight.copy;
        let (files, mut plan) = (&**self.files, copy.plan());
        let mut running = match (copy.direction, copy.size) {
            (Direction::Get, Some(bytes)) if bytes <= BUFFERED && self.are_open => {
                if !flight.is_confirmed() {
                    return Ok(false);
                }
                let sum = copy.verify.zip(flight.ahead.sum.clone());
                let sum = sum.map(|(algorithm, sum)| (algorithm, sum.to_ascii_lowercase()));
                plan.handling.demands.checksums.extend(sum);
                if copy.asks_consent() {
                    // All of it is here: nothing would be left to continue.
                    plan.handling.upload = UploadName::Unnamed;
                }
                LocalTransfer::start_here(files, plan, Some(bytes))
            }
            (Direction::Get, _) => LocalTransfer::start(files, plan, copy.asks_consent()),
            _ => LocalTransfer::start_here(files, plan, None),
        };
        flight.is_started = true;
        match running.finished.try_recv() {
            Ok(outcome) => self.ended(flights, outcome)?,
            Err(_) => self.running = Some(running),
        }
        Ok(true)
    }

    /// Lets a file that has arrived get its name, when the server has confirmed it.
    pub(super) fn consent(&mut self, flights: &VecDeque<Flight>) -> Result<(), TransferFailure> {
        let (Some(running), Some(sums)) = (&self.running, &self.arrived) else {
            return Ok(());
        };
        let started = flights.iter().rfind(|flight| flight.is_started);
        let Some(flight) = started.filter(|flight| flight.is_confirmed()) else {
            return Ok(());
        };
        check_length(&flight.copy, running.moved())?;
        if let (Some(algorithm), Some(source)) = (flight.copy.verify, &flight.ahead.sum) {
            let here = sums.iter().find(|(known, _)| *known == algorithm);
            let here = here.map(|(_, sum)| sum.clone()).unwrap_or_default();
            if let Err(failure) = verify::compared(source.clone(), here.clone(), false) {
                running.answer(Answer::WrongChecksum {
                    computed: here,
                    expected: source.clone(),
                });
                return Err(failure);
            }
        }
        running.answer(Answer::Complete);
        self.arrived = None;
        Ok(())
    }

    /// Notes the end of the transfer here.
    pub(super) fn ended(
        &mut self,
        flights: &mut VecDeque<Flight>,
        outcome: Outcome,
    ) -> Result<(), TransferFailure> {
        (self.running, self.arrived) = (None, None);
        let started = flights.iter_mut().rfind(|flight| flight.is_started);
        let Some(flight) = started else {
            return Err(TransferFailure::Lost);
        };
        // The server may say why. It is asked by the copy of this file alone.
        if let Err(error) = outcome.result {
            return Err(TransferFailure::of_local(error));
        }
        self.are_open = true;
        if let (Direction::Put, Some(algorithm)) = (flight.copy.direction, flight.copy.verify) {
            let (files, path) = (self.files.clone(), flight.copy.local.clone());
            flight.sum_here = Some(tokio::spawn(async move {
                verify::checksum_of_file(&files, algorithm, &path, None).await
            }));
        }
        flight.outcome = Some(outcome);
        Ok(())
    }

    /// Ends the transfer here.
    pub(super) async fn give_up(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.running.cancel(CancelReason::ControlChannelLost);
            // What a file system does not end in time, it ends later.
            let _ = timeout(FAREWELL, &mut running.finished).await;
        }
    }
}

pub(super) fn check_length(copy: &FileCopy, copied: u64) -> Result<(), TransferFailure> {
    match copy.size {
        Some(expected) if expected != copied => Err(TransferFailure::Length { expected, copied }),
        _ => Ok(()),
    }
}
