//! Bad input gets a clear error, and nothing is lost.
//!
//! Each test sends what no client should and asserts the reply by its code and by the words that name
//! what was wrong; then it does an ordinary transfer, in the same session where that survives, else in
//! a new one. Most run against our server only. The recorded dialogues run against the real server as
//! well, so that they are known to be what it really says.

mod blocks;
mod commands;
mod control_channel;
mod dialogues;
mod fixture;
mod gsi;
mod interrupts;
mod jail;
mod lifecycle;
mod limits;
mod paths;
mod peers;
mod pipelining;
mod restart;
mod shares;
mod storage;
mod strangers;
mod writers;
