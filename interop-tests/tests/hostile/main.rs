//! Invalid and hostile input gets a clear error, and does not affect other transfers.
//!
//! Each test sends invalid input and checks the code and the text of the reply; then it does an ordinary transfer, in
//! the same session if that still exists, else in a new one. Most tests run against our server only. The recorded
//! dialogues run against the real server as well, which verifies the recording.

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
