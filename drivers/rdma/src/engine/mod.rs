//! The protocol engine of a channel, without I/O and without a clock (sans-I/O).
//!
//! A stream of bytes crosses a *ring*: memory of the receiver to which the sender writes. Byte `n`
//! of the stream is at byte `n` modulo the ring's length. The sender has a ring of the same length
//! with the same layout. The ring is registered and its address exchanged when the channel opens.
//!
//! The sender cuts the stream into *pieces* and sends each over one queue pair: WRITEs no larger
//! than the path takes, then a SEND that announces the piece, or one WRITE with immediate data
//! where devices support that. A small piece travels inside the SEND. Pieces on different queue
//! pairs arrive in any order and are delivered in the order of the stream.
//!
//! Positions of the stream may be *padding* that holds no bytes. It puts the content of a file at the
//! offset in the ring that direct I/O needs: congruent to its offset in the file.
//!
//! The receiver returns *credit*: the position up to which it has consumed the stream. The sender
//! writes at most one ring beyond that, so it still has everything that is not consumed. A piece
//! that was lost with its queue pair is written again to the same place.
//!
//! In `mode=get` the receiver fetches: the sender announces pieces in its own ring and the receiver
//! READs them, unless they are so small that they travel inside the announcement. Data that is sent
//! from memory outside the sender's ring still has its place in the receiver's ring.
//!
//! A receiver whose ring turns out to be too short or too long offers another one, and the stream moves
//! to it while it runs (`exchange::growth`).
//!
//! Every message of the peer is validated; the errors name the violation.

mod crawl;
mod demand;
mod exchange;
mod message;
mod meter;
mod reader;
mod receiver;
mod ring;
mod sender;
mod sources;
mod supply;

pub(crate) use exchange::{Exchange, Fault};
#[cfg(any(test, fuzzing))]
pub(crate) use message::Message;
pub(crate) use reader::{Reader, ReaderSettings};
pub(crate) use receiver::Receiver;
pub(crate) use ring::Ring;
#[cfg(any(test, fuzzing))]
pub(crate) use ring::immediate;
pub(crate) use sender::{Sender, SenderSettings, Shape};
pub(crate) use sources::Source;
pub(crate) use supply::{Supplied, Supply, Wanted, Way};

#[cfg(test)]
mod tests;
