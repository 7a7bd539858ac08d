//! Replaces lost queue pairs; `slot` describes how.

use std::io;

use super::control_socket::{Notice, Step};
use super::slot::Content;
use super::{Failure, VerbsEndpoint};
use crate::provider::QueuePairRecord;
use crate::provider::{Completion, Loss};

impl VerbsEndpoint {
    /// Begins the next life of a queue pair, and tells the peer.
    pub(super) fn replace(&mut self, number: usize) {
        if let Err(error) = self.begin_life(number) {
            let words = format!("the queue pair cannot be replaced: {error}");
            self.fail(number, words);
        }
    }

    pub(super) fn fail(&mut self, queue_pair: usize, words: String) {
        self.failures.push(Failure {
            queue_pair,
            life: self.slots[queue_pair].life,
            loss: Loss::Failed(words),
        });
    }

    /// Reports failures, unless another life has begun since.
    pub(super) fn tell_failures(&mut self, completions: &mut Vec<Completion>) {
        for failure in std::mem::take(&mut self.failures) {
            let Failure {
                queue_pair, loss, ..
            } = failure;
            let slot = &mut self.slots[queue_pair];
            if slot.life != failure.life {
                continue;
            }
            if slot.living.is_some() {
                self.lose(queue_pair, loss, completions);
            } else {
                slot.clear();
                completions.push(Completion::Lost { queue_pair, loss });
            }
        }
    }

    pub(super) fn begin_life(&mut self, number: usize) -> io::Result<()> {
        let life = self.slots[number].next_life();
        let life = life.ok_or_else(|| io::Error::other("nothing got through several times"))?;
        let coming = self.queue_pair(number, life)?;
        let step = Step::Replaced(coming.record());
        self.slots[number].coming = Some(coming);
        self.tell(number, step)
    }

    pub(super) fn tell(&self, number: usize, step: Step) -> io::Result<()> {
        let beside = self.beside.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        beside.tell(Notice {
            queue_pair: u8::try_from(number).map_err(io::Error::other)?,
            life: self.slots[number].life,
            step,
        })
    }

    /// The peer replaces a queue pair, so this end does too.
    pub(super) fn hear(&mut self, notice: Notice, completions: &mut Vec<Completion>) {
        let number = usize::from(notice.queue_pair);
        if number >= self.slots.len() || !self.limits.replaces {
            return;
        }
        let life = self.slots[number].life;
        if Some(notice.life) == life.checked_add(1) {
            // The peer noticed the loss first, or has begun another life.
            if self.slots[number].clear() == Content::Living {
                completions.push(Completion::Lost {
                    queue_pair: number,
                    loss: Loss::Reset,
                });
            }
            self.replace(number);
        }
        if notice.life != self.slots[number].life {
            return;
        }
        let heard = match notice.step {
            Step::Replaced(record) => self.join(number, record),
            Step::Connected => {
                if let Some(coming) = &mut self.slots[number].coming {
                    coming.peer_is_connected = true;
                }
                Ok(())
            }
        };
        if let Err(error) = heard {
            return self.lose(number, Loss::Failed(error.to_string()), completions);
        }
        if self.slots[number].revive() {
            completions.push(Completion::Restored { queue_pair: number });
        }
    }

    /// Connects a replacement queue pair to the peer's.
    pub(super) fn join(&mut self, number: usize, peer: QueuePairRecord) -> io::Result<()> {
        let slot = &mut self.slots[number];
        let (Some(coming), Some(port)) = (&mut slot.coming, &self.peer_port) else {
            return Ok(());
        };
        if coming.is_connected {
            return Ok(());
        }
        self.path.connect(coming, port, peer)?;
        coming.is_connected = true;
        self.tell(number, Step::Connected)
    }
}
