//! Requests over a simulated queue, compared with a model of the file.

use gridhaul_direct::Call;
use gridhaul_direct::scripted::ScriptedQueue;
use proptest::prelude::*;

use super::*;
use crate::files::cut::{Cutter, Haste};

const BLOCK: u64 = 16;

fn request(call: Call, way: Way, offset: u64, start: usize, length: usize) -> Request {
    Request {
        call,
        way,
        offset,
        start,
        length,
    }
}

/// Waits for all requests; returns the count of bytes in order, and the failure.
fn settle(flights: &mut Flights, queue: &mut ScriptedQueue) -> (usize, Option<Failure>) {
    let mut moved = 0;
    while !flights.is_empty() {
        flights.wait(queue);
        match flights.next(queue) {
            Ok(count) => moved += count.unwrap_or(0),
            Err(failure) => return (moved, Some(failure)),
        }
    }
    (moved, None)
}

/// Writes four requests of two blocks each, with these results of the calls.
fn write(script: &[Result<usize, Errno>]) -> (ScriptedQueue, (usize, Option<Failure>)) {
    let mut queue = ScriptedQueue::sharing(Vec::new(), 4, 128);
    queue.script.extend(script);
    for (byte, number) in queue.shared().iter_mut().zip(1..) {
        *byte = number;
    }
    let mut flights = Flights::new(4, Some(BLOCK));
    for number in 0..4 {
        let start = number * 32;
        let one = request(Call::Write, Way::Direct, start as u64, start, 32);
        flights.submit(&mut queue, one);
    }
    assert!(!flights.has_room());
    let outcome = settle(&mut flights, &mut queue);
    (queue, outcome)
}

fn stream(length: u8) -> Vec<u8> {
    (1..=length).collect()
}

#[test]
fn a_full_disk_is_reported_and_later_bytes_do_not_count() {
    let all = usize::MAX;
    let (queue, outcome) = write(&[Ok(all), Err(Errno::NOSPC), Ok(all), Ok(all)]);
    assert_eq!(outcome, (32, Some(Failure::File(Errno::NOSPC))));
    assert_eq!(queue.file[..32], stream(32));
}

#[test]
fn the_rest_of_a_short_write_is_written_in_its_place() {
    // The rest of the second one begins within a block.
    let all = usize::MAX;
    let (queue, outcome) = write(&[Ok(16), Ok(5), Ok(all), Ok(all), Ok(all), Ok(all)]);
    assert_eq!(outcome, (128, None));
    assert_eq!(queue.file, stream(128));
    assert_eq!(queue.count(Way::Cached), 1);
    let last = queue.requests.last().unwrap();
    let rest = request(Call::Write, Way::Cached, 37, 37, 27);
    assert_eq!(*last, rest);
}

#[test]
fn a_file_system_that_refuses_direct_io_gets_the_page_cache() {
    let all = usize::MAX;
    for errno in [Errno::INVAL, Errno::OPNOTSUPP] {
        let (queue, outcome) = write(&[Ok(all), Err(errno), Ok(all), Ok(all), Ok(all)]);
        assert_eq!(outcome, (128, None));
        assert_eq!(queue.file, stream(128));
        assert_eq!(queue.count(Way::Cached), 1);
    }
}

#[test]
fn a_request_that_the_kernel_has_no_memory_for_is_repeated_but_not_for_ever() {
    let mut script = vec![Ok(usize::MAX); 3];
    script.extend([Err(Errno::AGAIN); 4]);
    assert_eq!(write(&script).1, (128, None));
    script.extend([Err(Errno::INTR); 2 * MOST_REPEATS as usize]);
    let failed = (96, Some(Failure::File(Errno::INTR)));
    assert_eq!(write(&script).1, failed);
    let (_, outcome) = write(&[Ok(0)]);
    assert_eq!(outcome, (0, Some(Failure::Nothing { offset: 0 })));
}

#[test]
fn a_file_that_ends_early_is_read_up_to_its_end() {
    let file = stream(37);
    let mut queue = ScriptedQueue::sharing(file.clone(), 2, 64);
    let mut flights = Flights::new(2, Some(BLOCK));
    for start in [0, 32] {
        let one = request(Call::Read, Way::Direct, start as u64, start, 32);
        flights.submit(&mut queue, one);
    }
    let outcome = settle(&mut flights, &mut queue);
    assert_eq!(outcome, (37, Some(Failure::Nothing { offset: 37 })));
    assert_eq!(queue.shared()[..37], file);
}

/// What happens to a disk with requests in flight.
#[derive(Debug, Clone)]
enum Event {
    /// The next request, if there is room for one.
    Submit,
    /// A request completes, in any order.
    Complete(usize),
    /// The driver looks at what has completed.
    Take,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        Just(Event::Submit),
        (0..4_usize).prop_map(Event::Complete),
        Just(Event::Take),
    ];
    proptest::collection::vec(event, 0..200)
}

fn results() -> impl Strategy<Value = Vec<Result<usize, Errno>>> {
    let result = prop_oneof![
        4 => Just(Ok(usize::MAX)),
        2 => (1..100_usize).prop_map(Ok),
        1 => Just(Err(Errno::AGAIN)),
    ];
    proptest::collection::vec(result, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// With any order of completions and short or refused calls, a range is read and written once and unchanged, in the order of
    /// the file, and no memory is touched that is in use.
    #[test]
    fn a_range_moves_unchanged(
        is_read: bool,
        events in events(),
        results in results(),
        offset in 0_u64..40,
        length in 1_u64..900,
        place in 0_u64..40,
    ) {
        const RING: usize = 256;
        let call = if is_read { Call::Read } else { Call::Write };
        let content: Vec<u8> = (0..).map(|index: u32| index.to_le_bytes()[0].wrapping_mul(31)).take(1000).collect();
        let file = if is_read { content.clone() } else { Vec::new() };
        let mut queue = ScriptedQueue::sharing(file, 4, RING);
        queue.is_slow = true;
        queue.script.extend(results);
        let cutter = Cutter { block: Some(BLOCK), request_bytes: 4 * BLOCK };
        let mut flights = Flights::new(4, cutter.block);
        let (end, mut asked, mut done) = (offset + length, offset, offset);
        let mut received = Vec::new();
        // After the events, everything happens in turn.
        let rest = [Event::Submit, Event::Complete(0), Event::Complete(1), Event::Complete(2), Event::Complete(3), Event::Take];
        let rest = rest.into_iter().cycle().take(50_000);
        for event in events.into_iter().chain(rest) {
            if done == end {
                break;
            }
            match event {
                Event::Submit if flights.has_room() => {
                    let at = usize::try_from(place + asked - offset).unwrap() % RING;
                    // Bytes in flight, and those that the other side of the ring has not taken, are in use.
                    let free = RING - usize::try_from(asked - done).unwrap();
                    let there = free.min(RING - at).min(usize::try_from(end - asked).unwrap());
                    let Some((way, length)) = cutter.cut(asked, at as u64, there as u64, Haste::All) else {
                        continue;
                    };
                    let length = usize::try_from(length).unwrap();
                    prop_assert!(!queue.uses(at, length));
                    if !is_read {
                        let from = usize::try_from(asked).unwrap();
                        queue.shared()[at..at + length].copy_from_slice(&content[from..from + length]);
                    }
                    flights.submit(&mut queue, Request { call, way, offset: asked, start: at, length });
                    asked += length as u64;
                }
                Event::Submit => {}
                Event::Complete(slot) => queue.finish(slot),
                Event::Take => {
                    while let Some(count) = flights.next(&mut queue).expect("nothing fails for ever") {
                        let at = usize::try_from(place + done - offset).unwrap() % RING;
                        prop_assert!(!queue.uses(at, count));
                        if is_read {
                            received.extend_from_slice(&queue.shared()[at..at + count]);
                        }
                        // The other side uses the memory for something else.
                        queue.shared()[at..at + count].fill(0xee);
                        done += count as u64;
                    }
                }
            }
        }
        prop_assert_eq!(done, end);
        let range = usize::try_from(offset).unwrap()..usize::try_from(end).unwrap();
        if is_read {
            prop_assert!(received == content[range]);
        } else {
            prop_assert!(queue.file[range.clone()] == content[range]);
        }
    }
}
