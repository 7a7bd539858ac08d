//! Tests of the choice with simulated costs.

use std::time::Duration;

use super::route::TRIAL_BYTES;
use super::*;

fn record(is_local: bool) -> Record {
    Record {
        route: Route {
            file_system: 0,
            direction: Direction::Sending,
            peer: Peer {
                is_local,
                is_protected: false,
            },
        },
        phase: Mutex::new(Phase::trial()),
    }
}

/// Moves bytes of a long transfer as a channel does; returns how many went through memory.
fn run(record: &Record, bytes: u64, cost: impl Fn(Method) -> (u64, u64)) -> u64 {
    const PIECE: u64 = 1 << 20;
    let mut through_memory = 0;
    for _ in 0..bytes / PIECE {
        let (way, is_measured) = record.choose(PIECE, true);
        if way == Method::Memory {
            through_memory += PIECE;
        }
        if is_measured {
            let (cpu, elapsed) = cost(way);
            record.note(
                way,
                Cost {
                    bytes: PIECE,
                    cpu: Duration::from_micros(cpu),
                    elapsed: Duration::from_micros(elapsed),
                },
            );
        }
    }
    through_memory
}

#[test]
fn the_cheaper_method_is_kept_after_both_were_tried() {
    let memory_wins = |way| match way {
        Method::Memory => (100, 200),
        Method::Kernel => (300, 250),
    };
    let one = record(false);
    run(&one, 2 * TRIAL_BYTES, memory_wins);
    assert_eq!(run(&one, 1 << 30, memory_wins), 1 << 30);
    let kernel_wins = |way| match way {
        Method::Memory => (300, 200),
        Method::Kernel => (100, 250),
    };
    let other = record(false);
    let tried = run(&other, 2 * TRIAL_BYTES, kernel_wins);
    assert_eq!(tried, TRIAL_BYTES);
    assert_eq!(run(&other, 1 << 30, kernel_wins), 0);
    assert_eq!(
        other.to_string(),
        "CPU seconds per GB: sendfile 0.095, read 0.286; seconds per GB: sendfile 0.238, read 0.191"
    );
}

#[test]
fn a_cheap_but_much_slower_method_is_not_kept() {
    for (slow, through_memory) in [(Method::Kernel, 1 << 20), (Method::Memory, 0)] {
        let record = record(false);
        run(&record, 2 * TRIAL_BYTES, |way| {
            if way == slow { (100, 1000) } else { (200, 300) }
        });
        assert_eq!(run(&record, 1 << 20, |_| (0, 0)), through_memory);
    }
}

#[test]
fn within_a_machine_the_faster_method_is_kept() {
    for (quick, through_memory) in [(Method::Memory, 1 << 20), (Method::Kernel, 0)] {
        let record = record(true);
        let tried = run(&record, 2 * LOCAL_TRIAL_BYTES, |way| {
            if way == quick { (300, 400) } else { (100, 500) }
        });
        assert_eq!(tried, LOCAL_TRIAL_BYTES);
        assert_eq!(run(&record, 1 << 20, |_| (0, 0)), through_memory);
    }
}

#[test]
fn within_a_machine_the_cheaper_of_two_equally_fast_methods_is_kept() {
    let record = record(true);
    run(&record, 2 * LOCAL_TRIAL_BYTES, |way| match way {
        Method::Memory => (300, 400),
        Method::Kernel => (100, 420),
    });
    assert_eq!(run(&record, 1 << 20, |_| (0, 0)), 0);
}

#[test]
fn the_trial_is_repeated() {
    let record = record(false);
    run(&record, 2 * TRIAL_BYTES + KEPT_BYTES, |way| match way {
        Method::Memory => (300, 300),
        Method::Kernel => (100, 100),
    });
    let tried = run(&record, 3 * TRIAL_BYTES, |way| match way {
        Method::Memory => (100, 100),
        Method::Kernel => (300, 300),
    });
    assert!(tried >= TRIAL_BYTES, "{tried}");
    assert_eq!(run(&record, 1 << 20, |_| (0, 0)), 1 << 20);
}

#[test]
fn short_pieces_are_not_measured_and_refused_methods_are_not_tried_again() {
    let record = record(false);
    assert_eq!(record.choose(1 << 30, false), (Method::Kernel, false));
    assert_eq!(
        record.choose(MEASURED_BYTES - 1, true),
        (Method::Kernel, false)
    );
    record.refuse(Errno::INVAL);
    assert_eq!(record.choose(1 << 30, true), (Method::Memory, false));
    assert_eq!(
        record.to_string(),
        "sendfile failed: Invalid argument (os error 22)"
    );
}
