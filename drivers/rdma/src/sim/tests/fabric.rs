//! The fabric as a provider: the guarantees of verbs hold over any path.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::{Replay, seeds};
use crate::memory::{Buffer, Memory, Span};
use crate::provider::{
    Access, Completion, Endpoint, Loss, Message, PostError, Region, Remote, Request, Work,
};
use crate::sim::endpoint::{SharedFabric, SimEndpoint};
use crate::sim::random::Random;
use crate::sim::*;

const LENGTH: usize = 64 << 10;

/// Two ends with memory.
struct Pair {
    fabric: SharedFabric,
    ends: [SimEndpoint; 2],
    memories: [Arc<Memory>; 2],
    regions: [Region; 2],
    happened: [Vec<Completion>; 2],
}

impl Pair {
    /// The peer may use the second end's memory with `access`.
    fn new(settings: FabricSettings, queue_pairs: usize, access: Access) -> Self {
        let fabric = SharedFabric::new(settings);
        let mut ends = fabric.connect(queue_pairs).unwrap();
        let memory = || Arc::new(Memory::new(NonZeroUsize::new(LENGTH).unwrap()).unwrap());
        let memories = [memory(), memory()];
        let regions = [
            ends[0].register(&memories[0], Access::Local).unwrap(),
            ends[1].register(&memories[1], access).unwrap(),
        ];
        Self {
            fabric,
            ends,
            memories,
            regions,
            happened: [Vec::new(), Vec::new()],
        }
    }

    fn post(&mut self, queue_pair: usize, id: u64, work: Work) -> Result<(), PostError> {
        self.ends[0].post(queue_pair, Request { id, work })
    }

    fn write(&mut self, queue_pair: usize, id: u64, offset: usize, length: usize) {
        let to = self.remote(offset);
        let span = Span::new(offset, length);
        let region = self.regions[0].id;
        let work = Work::Write {
            region,
            span,
            to,
            immediate: None,
        };
        self.post(queue_pair, id, work).unwrap();
    }

    fn remote(&self, offset: usize) -> Remote {
        Remote {
            address: self.regions[1].address + offset as u64,
            key: self.regions[1].key,
        }
    }

    /// Handles all events up to a time.
    fn run(&mut self, until: Duration) {
        self.fabric.run_until(until);
        for (end, happened) in self.ends.iter_mut().zip(&mut self.happened) {
            end.poll(happened);
        }
    }

    fn done(&self) -> Vec<u64> {
        let id = |completion: &Completion| match completion {
            Completion::Done { id, .. } => Some(*id),
            _ => None,
        };
        self.happened[0].iter().filter_map(id).collect()
    }
}

fn link() -> Link {
    Link::new(1 << 30, Duration::from_millis(10))
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_write_takes_a_round_trip() {
    let mut pair = Pair::new(FabricSettings::new(link()), 1, Access::RemoteWrite);
    pair.memories[0].copy_in(100, b"hello");
    pair.write(0, 7, 100, 5);
    pair.run(Duration::from_millis(20));
    assert_eq!(pair.done(), [0; 0]);
    pair.run(Duration::from_millis(21));
    assert_eq!(pair.done(), [7]);
    let mut bytes = [0; 5];
    pair.memories[1].copy_out(100, &mut bytes);
    assert_eq!(&bytes, b"hello");
    assert_eq!(pair.happened[1], [], "the other end learns nothing of it");
    assert_eq!(pair.fabric.dropped(0), 0);
}

#[test]
fn in_real_time_a_descriptor_tells_when_something_happens() {
    let fabric = SharedFabric::in_real_time(FabricSettings::new(link()));
    let mut ends = fabric.connect(1).unwrap();
    let work = Work::Send(Message::new(b"hello").unwrap());
    ends[0].post(0, Request { id: 1, work }).unwrap();
    for end in ends.iter_mut().rev() {
        let mut happened = Vec::new();
        while happened.is_empty() {
            let mut wanted = [PollFd::from_borrowed_fd(end.descriptor(), PollFlags::IN)];
            assert_eq!(poll(&mut wanted, None).unwrap(), 1);
            end.poll(&mut happened);
        }
    }
}

#[test]
fn a_reliable_connection_is_reliable() {
    everything_arrives_once(Repeat::GoBackN);
}

#[test]
fn so_it_is_with_selective_repeat() {
    everything_arrives_once(Repeat::Selective);
}

/// In order, over a path that loses packets and drops messages.
fn everything_arrives_once(repeat: Repeat) {
    for seed in seeds(300) {
        let _replay = Replay(seed);
        let mut random = Random::new(seed);
        let mut settings = FabricSettings::new(link());
        settings.repeat = repeat;
        settings.seed = seed;
        settings.packet_bytes = 256;
        for link in &mut settings.links {
            link.loss = random.share() * 0.1;
            link.jitter = Duration::from_millis(random.below(5));
        }
        let reads = random.below(2) == 0;
        if !reads && random.below(2) == 0 {
            // Full again after each timeout: otherwise later messages would use up what it passes
            // of the overdue one.
            settings.links[0].policer = Some(Policer {
                rate: 1_000_000,
                burst: 10_000,
            });
        }
        let access = match reads {
            true => Access::RemoteRead,
            false => Access::RemoteWrite,
        };
        let mut pair = Pair::new(settings, 2, access);
        let content: Vec<u8> = (0..LENGTH)
            .map(|_| random.next().to_be_bytes()[0])
            .collect();
        pair.memories[usize::from(reads)].copy_in(0, &content);
        let (mut place, mut id) = (0, 0);
        while place < LENGTH && id < 15 {
            let length = 1 + random.index(8000);
            let length = length.min(LENGTH - place);
            if reads {
                let work = Work::Read {
                    region: pair.regions[0].id,
                    span: Span::new(place, length),
                    from: pair.remote(place),
                };
                pair.post(0, id, work).unwrap();
            } else {
                pair.write(0, id, place, length);
            }
            let message = Message::new(&id.to_be_bytes()).unwrap();
            pair.post(0, id, Work::Send(message)).unwrap();
            (place, id) = (place + length, id + 1);
        }
        pair.run(30 * MINUTE);
        let twice: Vec<u64> = (0..id).flat_map(|id| [id, id]).collect();
        assert_eq!(pair.done(), twice);
        let received: Vec<_> = (0..id)
            .map(|id| Completion::Received {
                queue_pair: 0,
                message: id.to_be_bytes().to_vec(),
            })
            .collect();
        assert_eq!(pair.happened[1], received);
        let mut bytes = vec![0; place];
        pair.memories[usize::from(!reads)].copy_out(0, &mut bytes);
        assert!(bytes == content[..place]);
    }
}

#[test]
fn a_forbidden_access_breaks_the_queue_pair_at_both_ends() {
    let cases: [(Access, usize, u32, &str); 3] = [
        (
            Access::RemoteWrite,
            0,
            1,
            "there is no memory with this key",
        ),
        (
            Access::RemoteWrite,
            LENGTH - 99,
            0,
            "the place is not within the memory",
        ),
        (Access::RemoteRead, 0, 0, "the memory is not for this"),
    ];
    for (access, offset, key, reason) in cases {
        let mut settings = FabricSettings::new(link());
        settings.replaces = false;
        let mut pair = Pair::new(settings, 2, access);
        let mut to = pair.remote(offset);
        to.key ^= key;
        let region = pair.regions[0].id;
        let span = Span::new(0, 100);
        let write = Work::Write {
            region,
            span,
            to,
            immediate: None,
        };
        pair.post(1, 5, write).unwrap();
        pair.run(MINUTE);
        let lost = Completion::Lost {
            queue_pair: 1,
            loss: Loss::Failed(reason.to_owned()),
        };
        assert_eq!(pair.happened, [vec![lost.clone()], vec![lost]]);
        assert_eq!(
            pair.post(1, 6, Work::Send(Message::new(b"").unwrap())),
            Err(PostError::Lost)
        );
    }
}

#[test]
fn retries_end_unless_they_are_for_ever() {
    for (retries, ends) in [(3, true), (7, false)] {
        let mut settings = FabricSettings::new(link());
        settings.retries = retries;
        settings.replaces = false;
        settings.links[0].down = Duration::ZERO..MINUTE;
        let mut pair = Pair::new(settings, 1, Access::RemoteWrite);
        pair.write(0, 1, 0, 5);
        pair.run(MINUTE / 2);
        assert_eq!(
            matches!(pair.happened[0][..], [Completion::Lost { .. }]),
            ends
        );
        pair.run(2 * MINUTE);
        assert_eq!(pair.done().is_empty(), ends);
    }
}

#[test]
fn a_lost_queue_pair_comes_back_empty_at_both_ends() {
    let mut pair = Pair::new(FabricSettings::new(link()), 1, Access::RemoteWrite);
    pair.memories[0].copy_in(0, b"old");
    pair.write(0, 1, 0, 3);
    pair.ends[0].break_queue_pair(0);
    assert_eq!(
        pair.post(0, 2, Work::Send(Message::new(b"").unwrap())),
        Err(PostError::Lost)
    );
    pair.run(MINUTE);
    for (happened, reason) in pair.happened.iter().zip(["failed", "reset"]) {
        let [
            Completion::Lost { loss, .. },
            Completion::Restored { queue_pair: 0 },
        ] = &happened[..]
        else {
            panic!("{happened:?}");
        };
        assert_eq!(matches!(loss, Loss::Reset), reason == "reset");
    }
    pair.write(0, 3, 0, 3);
    pair.run(2 * MINUTE);
    assert_eq!(pair.done(), [3]);
}

#[test]
fn a_peer_that_leaves_or_aborts_does_not_come_back() {
    for aborts in [false, true] {
        let fabric = SharedFabric::new(FabricSettings::new(link()));
        let [mut first, mut second] = fabric.connect(1).unwrap();
        let message = Message::new(b"last words").unwrap();
        let work = Work::Send(message);
        first.post(0, Request { id: 1, work }).unwrap();
        if aborts {
            first.abort();
        }
        drop(first);
        fabric.run_until(MINUTE);
        let mut happened = Vec::new();
        second.poll(&mut happened);
        let loss = if aborts { Loss::Reset } else { Loss::Closed };
        let lost = Completion::Lost {
            queue_pair: 0,
            loss,
        };
        let mut wanted = vec![lost.clone(), lost];
        if !aborts {
            let queue_pair = 0;
            let received = Completion::Received {
                queue_pair,
                message: message.as_bytes().to_vec(),
            };
            wanted.insert(0, received);
        }
        assert_eq!(happened, wanted);
    }
}
