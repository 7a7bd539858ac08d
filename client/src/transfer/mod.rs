//! Transfers of one file: between this machine and a server, and between two servers.
//!
//! ```text
//!   two_party     a server and this machine ──> local_end (channels and files of this machine)
//!   third_party   two servers
//!     both use: said (replies while a server transfers), stall (time limits), verify (checksums of both ends), part (parts of files),
//!               stored (sizes of copies at servers), ahead (commands of several files that are sent ahead), dates (their times),
//!               doubt (files of these commands that may have wrong content)
//!   stream        standard input and output as an end of two_party
//! ```

mod ahead;
mod dates;
mod doubt;
mod error;
mod local_end;
mod part;
mod relay;
mod said;
mod stall;
mod stored;
mod stream;
mod third_party;
mod two_party;
mod verify;

use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Details;

pub use ahead::{Supply, is_out_of_step};
pub use doubt::Doubt;
pub use error::TransferFailure;
pub use part::FilePart;
pub use relay::{RelayedCopy, relay};
pub(crate) use said::MOST_RANGES;
pub use stream::ByteStream;
pub use third_party::{ThirdPartyCopy, pipeline_between, third_party};
pub use two_party::{Direction, FileCopy, pipeline, two_party};
pub use verify::{checksum_of_file, checksum_of_server};

/// How long nothing may happen, unless a caller wants something else.
pub(crate) const STALL: Duration = Duration::from_secs(60);

/// What a complete transfer has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes of the file that were moved.
    pub bytes: u64,
    /// Data channels.
    pub channels: usize,
    /// From the command to the last reply.
    pub took: Duration,
    /// How the driver of this machine moved the bytes, where it had a choice.
    pub movement: Option<String>,
    /// Why the driver of this machine chose that way.
    pub reason: Option<String>,
    /// What the drivers of this machine report.
    pub details: Details,
    /// The checksum of both ends, if they were compared.
    pub checksum: Option<String>,
    /// What the destination of a copy in MODE E between two servers lacked before a restart, and has not told to have stored: it may be a
    /// hole there. None of a part, whose markers do not count from the beginning of the file, and none after a comparison of checksums.
    pub unproven: RangeSet,
}

/// Receives what happens during a transfer.
pub trait Observer: Send {
    /// The bytes that have moved in this transfer, in all.
    fn moved(&mut self, bytes: u64);

    /// The bytes that have moved over each data channel of this machine. Told before [`Observer::moved`].
    fn channels(&mut self, _bytes: &[u64]) {}

    /// The bytes that have moved over each stripe between two servers, by the markers of the destination. Told before
    /// [`Observer::moved`].
    fn stripes(&mut self, _bytes: &[u64]) {}

    /// A server that was to connect to this machine has done so ([`FileCopy::first_connection`]).
    fn connected(&mut self) {}

    /// A destination at another server has begun to receive: it may store what no marker tells before a failure.
    fn receives(&mut self);

    /// Ranges that the destination has stored, for a restart.
    fn stored(&mut self, ranges: &RangeSet);
}

/// An observer that looks at nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn moved(&mut self, _bytes: u64) {}

    fn receives(&mut self) {}

    fn stored(&mut self, _ranges: &RangeSet) {}
}
