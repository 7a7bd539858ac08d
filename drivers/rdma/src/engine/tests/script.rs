//! Both directions over an endpoint that a test controls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::fabric::{Fabric, fabric_settings, remote};
use crate::engine::sender::Post;
use crate::engine::{Exchange, Message, Sender};
use crate::memory::Memory;
use crate::pacing::{Pacer, Path, Rate};
use crate::provider::{
    Access, Completion, Endpoint, Limits, Loss, PostError, Region, Request, Work,
};

/// An endpoint without a wire: it records what is posted, and the test supplies the events.
#[derive(Debug)]
struct Script {
    queue_pairs: usize,
    replaces: bool,
    posted: Vec<Post>,
    happens: Vec<Completion>,
    never: OwnedFd,
}

impl Endpoint for Script {
    fn limits(&self) -> Limits {
        Limits {
            queue_pairs: self.queue_pairs,
            rails: 1,
            depth: 8,
            reads: 0,
            message_bytes: 1000,
            payload_bytes: 0,
            immediate: false,
            over_tcp: false,
            needs_polling: false,
            replaces: self.replaces,
        }
    }

    fn register(&mut self, _: &Arc<Memory>, _: Access) -> io::Result<Region> {
        unreachable!("an engine registers nothing")
    }

    fn deregister(&mut self, _: usize) {}

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        self.posted.push(Post {
            queue_pair,
            request,
        });
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.happens);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn close(&mut self, _: usize) -> bool {
        true
    }

    fn end(&mut self) {}

    fn abort(&mut self) {}
}

impl Script {
    fn new(queue_pairs: usize, replaces: bool) -> Self {
        let never = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        Self {
            queue_pairs,
            replaces,
            posted: Vec::new(),
            happens: Vec::new(),
            never: never.unwrap(),
        }
    }

    /// The requests that the engine posts after these events.
    fn then(&mut self, exchange: &mut Exchange, happens: &[Completion]) -> Vec<Post> {
        self.happens = happens.to_vec();
        exchange.advance(self, Duration::ZERO).unwrap();
        std::mem::take(&mut self.posted)
    }
}

#[test]
fn a_restored_queue_pair_carries_lost_pieces_again() {
    let mut fabric = Fabric::new(100, 50, 50, 1, 4);
    fabric.fill(&[1; 50]);
    let Fabric {
        sender,
        mut receiver,
        ..
    } = fabric;
    receiver.arrived(0, 25).unwrap();
    receiver.consume(25);
    let mut exchange = Exchange::new(sender, receiver, 1);
    let mut script = Script::new(1, true);
    let first = script.then(&mut exchange, &[]);
    assert_eq!(first.len(), 3, "a WRITE, its announcement, and credit");
    assert_eq!(first[2], said(0, Message::Credit { consumed: 25 }));

    let lost = Completion::Lost {
        queue_pair: 0,
        loss: Loss::Reset,
    };
    assert_eq!(script.then(&mut exchange, std::slice::from_ref(&lost)), []);
    assert!(!exchange.is_over());
    let restored = Completion::Restored { queue_pair: 0 };
    assert_eq!(script.then(&mut exchange, &[restored]), first);

    // The peer may have lost it in an earlier generation, which is ignored; a loss of the present generation is
    // not.
    assert_eq!(script.then(&mut exchange, &[abandon(0, 0)]), []);
    script.then(&mut exchange, &[abandon(0, 1)]);
    assert!(!exchange.is_over());
    script.then(&mut exchange, &[lost]);
    assert!(exchange.is_over());
}

#[test]
fn pieces_on_a_queue_pair_that_the_peer_abandoned_go_over_another() {
    let mut fabric = Fabric::new(100, 50, 50, 2, 4);
    fabric.fill(&[1; 50]);
    let mut exchange = Exchange::new(fabric.sender, fabric.receiver, 2);
    let mut script = Script::new(2, false);
    let first = script.then(&mut exchange, &[]);
    assert!(first.len() == 2 && first.iter().all(|post| post.queue_pair == 0));
    let again = script.then(&mut exchange, &[abandon(0, 0)]);
    let lost = Message::Abandon {
        queue_pair: 0,
        generation: 0,
    };
    let Work::Write {
        region,
        span,
        immediate,
        ..
    } = first[0].request.work
    else {
        panic!("{first:?}");
    };
    let write = Work::Write {
        region,
        span,
        to: remote(2).at(1, span.offset),
        immediate,
    };
    let id = first[0].request.id;
    let moved = |request: Request| Post {
        queue_pair: 1,
        request,
    };
    let again_there = [Request { id, work: write }, first[1].request].map(moved);
    assert_eq!(again[0], said(1, lost));
    assert_eq!(again[1..], again_there);
    // This number is invalid, so no other queue pair is left.
    assert_eq!(script.then(&mut exchange, &[abandon(2, 0)]), []);
    assert_eq!(script.then(&mut exchange, &[abandon(1, 0)]), []);
    assert!(exchange.is_over());
}

fn said(queue_pair: usize, message: Message) -> Post {
    let work = Work::Send(message.encode());
    let request = Request { id: 0, work };
    Post {
        queue_pair,
        request,
    }
}

fn abandon(queue_pair: usize, generation: u32) -> Completion {
    Completion::Received {
        queue_pair: 0,
        message: Message::Abandon {
            queue_pair,
            generation,
        }
        .encode()
        .as_bytes()
        .to_vec(),
    }
}

#[test]
fn the_next_piece_goes_where_the_fewest_bytes_are_in_flight() {
    let mut fabric = Fabric::new(100, 25, 25, 2, 4);
    fabric.fill(&[1; 50]);
    let mut exchange = Exchange::new(fabric.sender, fabric.receiver, 2);
    let mut script = Script::new(2, false);
    let first = script.then(&mut exchange, &[]);
    let order: Vec<_> = first.iter().map(|post| post.queue_pair).collect();
    assert_eq!(order, [0, 0, 1, 1], "a WRITE and its announcement on each");
    let done = first[2..].iter().map(|post| Completion::Done {
        queue_pair: 1,
        id: post.request.id,
    });
    exchange.sender.fill(25);
    let next = script.then(&mut exchange, &done.collect::<Vec<_>>());
    let order: Vec<_> = next.iter().map(|post| post.queue_pair).collect();
    assert_eq!(order, [1, 1], "although it was the turn of the other one");
}

#[test]
fn a_queue_pair_without_completions_is_given_up() {
    let mut fabric = Fabric::new(100, 50, 50, 1, 4);
    fabric.sender = Sender::new(
        fabric_settings(&fabric),
        Pacer::new(Path::new(Rate::Any, 0), 0),
    );
    fabric.fill(&[1; 100]);
    let mut exchange = Exchange::new(fabric.sender, fabric.receiver, 1);
    let mut script = Script::new(1, true);
    let mut at = |seconds: u64, happens: &[Completion]| {
        let now = Duration::from_secs(seconds);
        script.happens = happens.to_vec();
        // After arming the descriptor the caller polls once more.
        exchange.advance(&mut script, now).unwrap();
        exchange.advance(&mut script, now).unwrap();
        let posted = std::mem::take(&mut script.posted).len();
        (posted, exchange.meter().stalls(), exchange.next_at(now))
    };
    let seconds = Duration::from_secs;
    let done = Completion::Done {
        queue_pair: 0,
        id: 0,
    };
    assert_eq!(at(10, &[]), (5, 0, Some(seconds(13))));
    assert_eq!(at(12, &[done]), (1, 0, Some(seconds(15))));
    assert_eq!(at(14, &[]), (0, 0, Some(seconds(15))));
    assert_eq!(at(15, &[]), (0, 1, None));
    // Until the queue pair is restored, no request is posted and none can stall.
    assert_eq!(at(30, &[]), (0, 1, None));
    let restored = Completion::Restored { queue_pair: 0 };
    assert_eq!(at(40, &[restored]), (5, 1, Some(seconds(43))));
}
