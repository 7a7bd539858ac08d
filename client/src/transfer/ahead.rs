//! Commands that are sent before the replies to earlier ones: those of one file at one server.
//!
//! Replies have no names, so they are matched by their order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::{AlgorithmName, Command};
use gridhaul_protocol::marker::RestartMarker;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;
use gridhaul_storage::ChecksumAlgorithm;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::doubt::Doubt;
use super::stall::StallWatch;
use super::{TransferFailure, Transferred};
use crate::control::{Control, ControlError};
use crate::session::{StoredMarkers, sum_of_reply};

/// The bytes of files ahead. More would only take them away from other sessions.
const MOST_BYTES: u64 = 8 << 20;

/// The bytes of commands ahead: a server that reads none during a transfer must have room for all of them, because the client would
/// wait for it without serving the transfer.
const MOST_COMMAND_BYTES: usize = 8 << 10;

/// Further ranges of one file are not remembered: a small file arrives in few.
const MOST_RANGES: usize = 256;

/// A server that has not begun a file after so long may have discarded the command.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// How often time limits are looked at.
const TICK: Duration = Duration::from_millis(100);

/// The files of a pipeline.
pub trait Supply<Copy>: Send {
    /// How many files may be ahead now.
    fn most(&self) -> usize;

    /// The next file, if one waits now. It goes the same way as the first one, with the same settings.
    fn next(&mut self) -> Option<Copy>;

    /// The oldest file that has no result is complete.
    fn complete(&mut self, done: Transferred);

    /// The pipeline has failed, and the destination may have the content of another file under the name of this one of the files
    /// without a result, counted from the oldest one.
    fn doubt(&mut self, place: usize, doubt: Doubt);
}

/// What a file takes of the limits of a pipeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) bytes: u64,
    /// Of the commands, as long as a server may not have read all of them.
    pub(super) command_bytes: usize,
}

/// The files ahead, and the limits for them.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    files: usize,
    bytes: u64,
    command_bytes: usize,
}

impl Budget {
    /// At most so many files, and those that are ahead now.
    pub(super) fn new(most: usize, ahead: impl Iterator<Item = Cost>) -> Self {
        let mut budget = Self {
            most,
            files: 0,
            bytes: 0,
            command_bytes: 0,
        };
        ahead.for_each(|cost| budget.add(cost));
        budget
    }

    pub(super) fn add(&mut self, cost: Cost) {
        self.files += 1;
        self.bytes += cost.bytes;
        self.command_bytes += cost.command_bytes;
    }

    /// Other commands are ahead, too.
    pub(super) fn add_commands(&mut self, bytes: usize) {
        self.command_bytes += bytes;
    }

    /// Whether few files are ahead, so that the commands of several further ones can be sent together.
    pub(super) fn is_low(&self) -> bool {
        self.files <= self.most / 2
    }

    /// Whether a further file is within all limits.
    pub(super) fn has_room(&self) -> bool {
        self.files < self.most && self.bytes < MOST_BYTES && self.command_bytes < MOST_COMMAND_BYTES
    }
}

/// Notices when nothing moves, and when a server does not begin a file.
#[derive(Debug)]
pub(super) struct Silence {
    pub(super) watch: StallWatch,
    since: Instant,
}

impl Silence {
    /// Without progress for so long, the pipeline has failed.
    pub(super) fn new(stall: Duration) -> Self {
        Self {
            watch: StallWatch::new(stall),
            since: Instant::now(),
        }
    }

    /// Bytes have moved, or another file is the oldest one.
    pub(super) fn ends(&mut self) {
        self.since = Instant::now();
    }

    /// A server begins a file, or has given one its time.
    pub(super) fn progressed(&mut self) {
        self.ends();
        self.watch.progressed();
    }

    /// A server says that it works.
    pub(super) fn hears(&mut self) {
        self.ends();
        self.watch.hears();
    }

    /// Whether there is still hope. `waits` says that a server has not begun the oldest file.
    pub(super) fn check(&self, waits: bool) -> Result<(), TransferFailure> {
        let silence = self.since.elapsed();
        match self.watch.is_overdue() || waits && silence >= LONGEST_SILENCE {
            true => Err(TransferFailure::Stalled(self.watch.limit().min(silence))),
            false => Ok(()),
        }
    }
}

/// When time limits are looked at.
pub(super) fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Whether replies came that do not fit the commands.
pub fn is_out_of_step(failure: &TransferFailure) -> bool {
    matches!(
        failure,
        TransferFailure::Source(ControlError::Unexpected { .. })
            | TransferFailure::Destination(ControlError::Unexpected { .. })
    )
}

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `ALLO`, which a server may refuse.
    Announce,
    /// `STOR`, `RETR`.
    Move,
    /// `SIZE` of the copy.
    Size,
    /// `CKSM` of this algorithm.
    Sum(ChecksumAlgorithm),
}

/// What a reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// A marker of the transfer (`111`, `112`).
    Marker,
    /// The server is at work, or the file waits there (GFD.20 120).
    Works,
    /// The server begins the transfer.
    Begins,
    /// A command has its last reply.
    Last,
}

/// The commands of a file that were sent to a server, and what it has replied.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Commands without their last replies, and their verbs.
    owed: VecDeque<(Step, &'static str)>,
    command_bytes: usize,
    /// The server has begun the transfer.
    pub(super) has_begun: bool,
    /// The server has confirmed it.
    pub(super) is_confirmed: bool,
    /// The server has refused it.
    is_refused: bool,
    /// The reply to `SIZE`, in bytes.
    pub(super) size: Option<u64>,
    /// What the server has stored, by its `111`.
    stored: RangeSet,
    /// The reply to `CKSM`.
    pub(super) sum: Option<String>,
}

impl Ahead {
    /// Adds the commands to those that are sent next.
    pub(super) fn prepare(
        control: &mut Control,
        commands: &[(Step, Command)],
    ) -> Result<Self, ControlError> {
        let mut command_bytes = 0;
        for (_, command) in commands {
            command_bytes += control.prepare(command)?;
        }
        let owed = commands.iter().map(|(step, one)| (*step, one.verb()));
        Ok(Self {
            owed: owed.collect(),
            command_bytes,
            ..Self::default()
        })
    }

    /// Whether the markers of the server say that it has stored a file of this size, and nothing behind its end.
    fn has_stored(&self, size: u64) -> bool {
        self.stored.covered() == size && self.stored.end() == size
    }

    /// Whether what the markers tell is a size, after a file of which `is_right` says whether the copy has the size of the source.
    pub(super) fn judged(&self, before: StoredMarkers, is_right: bool) -> StoredMarkers {
        match (before, self.size) {
            (_, None) if !is_right => StoredMarkers::Unreliable,
            (StoredMarkers::Unknown, Some(size))
                if is_right && size > 0 && self.has_stored(size) =>
            {
                StoredMarkers::Sizes
            }
            (before, _) => before,
        }
    }

    /// The bytes of the copy, by `SIZE` or else by the markers. `expected` are those that it should have.
    pub(super) fn copied(&self, expected: u64) -> u64 {
        let stored = || match self.stored.end() {
            end if end > expected => end,
            _ => self.stored.covered(),
        };
        self.size.unwrap_or_else(stored)
    }

    /// What the destination of a file without a result may have under its name. Nothing that was not there before, if it has refused
    /// the file before it began.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        match self.is_confirmed {
            true => Some(Doubt::Stored),
            false => (self.has_begun || !self.is_refused).then_some(Doubt::Unknown),
        }
    }

    /// Whether all commands have their last replies.
    pub(super) fn is_answered(&self) -> bool {
        self.owed.is_empty()
    }

    /// The bytes of the commands, as long as the server may not have read all of them.
    pub(super) fn unread_bytes(&self) -> usize {
        match self.is_answered() {
            true => 0,
            false => self.command_bytes,
        }
    }

    /// Takes the next reply. A transfer that has no end yet (`may_end`) cannot be confirmed.
    pub(super) fn hear(&mut self, reply: Reply, may_end: bool) -> Result<Heard, ControlError> {
        let Some((step, verb)) = self.owed.front().copied() else {
            let verb = "no command";
            return Err(ControlError::Unexpected { verb, reply });
        };
        if let Some(heard) = self.preliminary(step, &reply) {
            return heard.ok_or(ControlError::Unexpected { verb, reply });
        }
        self.owed.pop_front();
        match (step, reply.code()) {
            // A server may refuse what it does not need.
            (Step::Announce, 200 | 202 | 400..) => {}
            // A directory may be for uploads only: then the markers count.
            (Step::Size, 400..) => {}
            (_, 400..) => {
                self.is_refused |= step == Step::Move;
                return Err(ControlError::Refused { verb, reply });
            }
            (Step::Move, 226 | 250) if self.has_begun && may_end => self.is_confirmed = true,
            (Step::Size, 213) => match reply.text().trim().parse() {
                Ok(size) => self.size = Some(size),
                Err(_) => return Err(ControlError::Unexpected { verb, reply }),
            },
            (Step::Sum(algorithm), 200..=299) => match sum_of_reply(algorithm.name(), &reply) {
                Some(sum) => self.sum = Some(sum),
                None => return Err(ControlError::Unexpected { verb, reply }),
            },
            _ => return Err(ControlError::Unexpected { verb, reply }),
        }
        Ok(Heard::Last)
    }

    /// Adds the ranges of a `111`. They tell only what has arrived since the last one.
    fn note_stored(&mut self, reply: &Reply) {
        if let Ok(RestartMarker(ranges)) = RestartMarker::from_reply(reply)
            && self.stored.len() + ranges.len() <= MOST_RANGES
        {
            self.stored.extend_from(&ranges);
        }
    }

    /// What a preliminary reply means: `None` if it is a last one, `Some(None)` if it has no meaning here.
    fn preliminary(&mut self, step: Step, reply: &Reply) -> Option<Option<Heard>> {
        if !reply.is_preliminary() {
            return None;
        }
        Some(match (step, reply.code()) {
            (Step::Move, 125 | 150) => {
                let has_begun = std::mem::replace(&mut self.has_begun, true);
                (!has_begun).then_some(Heard::Begins)
            }
            (Step::Move, 111 | 112) => {
                self.note_stored(reply);
                Some(Heard::Marker)
            }
            (Step::Move | Step::Sum(_), _) => Some(Heard::Works),
            _ => None,
        })
    }
}

/// The command that asks a server for the checksum of a whole file.
pub(super) fn sum(
    algorithm: ChecksumAlgorithm,
    path: &PathArgument,
) -> Result<(Step, Command), ControlError> {
    let name = AlgorithmName::new(algorithm.name());
    let name = name.ok_or(ControlError::Unsendable("the name of the algorithm"))?;
    let command = Command::Cksm {
        algorithm: name,
        offset: 0,
        length: None,
        path: path.clone(),
    };
    Ok((Step::Sum(algorithm), command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(steps: &[Step]) -> Ahead {
        Ahead {
            owed: steps.iter().map(|step| (*step, "TEST")).collect(),
            command_bytes: 10,
            ..Ahead::default()
        }
    }

    fn reply(line: &str) -> Reply {
        let mut bytes = line.as_bytes();
        let decoded = gridhaul_protocol::reply::ReplyDecoder::new().decode(&mut bytes);
        decoded.unwrap().unwrap()
    }

    /// Takes replies until one does not fit.
    fn hears(steps: &[Step], lines: &[&str]) -> (Ahead, bool) {
        let mut ahead = ahead(steps);
        let fits = |line: &&str| ahead.hear(reply(&format!("{line}\r\n")), true).is_ok();
        let fit = lines.iter().all(fits);
        (ahead, fit)
    }

    #[test]
    fn replies_are_matched_with_the_steps() {
        let sum = Step::Sum(ChecksumAlgorithm::Adler32);
        let steps = [Step::Announce, Step::Move, Step::Size, sum];
        let lines = ["500 no", "150 now", "112 mark", "226 done", "213 17"];
        let (_, fit) = hears(&steps, &[&lines[..], &["213 done"]].concat());
        assert!(!fit);
        let (all, fit) = hears(&steps, &[&lines[..], &["213 00620abc"]].concat());
        assert!(fit && all.is_answered() && all.is_confirmed);
        assert_eq!((all.size, all.sum.as_deref()), (Some(17), Some("00620abc")));
        assert_eq!(all.unread_bytes(), 0);
    }

    #[test]
    fn replies_of_other_commands_do_not_fit() {
        let steps = [Step::Move, Step::Size];
        for lines in [
            &["226 done"][..],
            &["200 yes"],
            &["150 now", "125 again"],
            &["150 now", "200 yes"],
            &["150 now", "226 done", "226 done"],
            &["150 now", "226 done", "213 many"],
            &["150 now", "226 done", "150 now"],
            &["150 now", "226 done", "213 17", "213 17"],
        ] {
            let (_, fit) = hears(&steps, lines);
            assert!(!fit, "{lines:?}");
        }
    }

    #[test]
    fn markers_tell_what_the_server_has_stored() {
        let (all, fit) = hears(
            &[Step::Move],
            &[
                "150 now",
                "111 Range Marker 0-5",
                "112 mark",
                "111 Range Marker 7-10",
                "226 done",
            ],
        );
        assert!(fit && !all.has_stored(10));
        assert_eq!(all.copied(10), 8);
        let (all, fit) = hears(
            &[Step::Move, Step::Size],
            &["150 now", "111 Range Marker 5-10,0-5", "226 done"],
        );
        assert!(fit && all.has_stored(10) && !all.has_stored(5) && !all.has_stored(11));
        assert_eq!([5, 10, 11].map(|size| all.copied(size)), [10, 10, 10]);
        let gap = hears(&[Step::Move], &["150 now", "111 Range Marker 0-5,10-15"]).0;
        assert!(!gap.has_stored(10), "as many bytes, but not the first ones");
        assert_eq!(gap.copied(10), 15);
    }

    #[test]
    fn the_next_step_follows_a_refusal() {
        let mut all = ahead(&[Step::Move, Step::Size]);
        let refused = all.hear(reply("550 no\r\n"), true);
        assert!(matches!(refused, Err(ControlError::Refused { .. })));
        assert_eq!(all.hear(reply("213 17\r\n"), true).unwrap(), Heard::Last);
        assert!(all.is_answered() && !all.is_confirmed);
    }

    #[test]
    fn a_file_without_a_result_is_in_doubt_unless_it_was_refused_before_it_began() {
        let doubt = |lines: &[&str]| hears(&[Step::Move, Step::Size], lines).0.doubt();
        assert_eq!(doubt(&[]), Some(Doubt::Unknown));
        assert_eq!(doubt(&["125 now"]), Some(Doubt::Unknown));
        assert_eq!(doubt(&["125 now", "426 broken"]), Some(Doubt::Unknown));
        assert_eq!(doubt(&["550 no"]), None);
        for lines in [
            &["125 now", "226 done"][..],
            &["125 now", "226 done", "550 no"],
        ] {
            assert_eq!(doubt(lines), Some(Doubt::Stored));
        }
    }
}
