//! Tests of the choice with simulated costs.

use std::time::Duration;

use super::*;

const TRIAL_BYTES: u64 = 16 << 20;

fn rule(goal: Goal) -> Rule {
    Rule {
        goal,
        trial_bytes: TRIAL_BYTES,
        least_bytes: 128 << 10,
        usual: Method::Bypass,
    }
}

fn choice(goal: Goal) -> Choice {
    Choice::new(rule(goal))
}

/// Moves bytes of a long transfer as a channel does; returns how many were copied.
fn run(choice: &Choice, bytes: u64, cost: impl Fn(Method) -> (u64, u64)) -> u64 {
    const PIECE: u64 = 1 << 20;
    let mut copied = 0;
    for _ in 0..bytes / PIECE {
        let (way, is_measured) = choice.choose(PIECE, true);
        if way == Method::Copy {
            copied += PIECE;
        }
        if is_measured {
            let (cpu, elapsed) = cost(way);
            choice.note(
                way,
                Cost {
                    bytes: PIECE,
                    cpu: Duration::from_micros(cpu),
                    elapsed: Duration::from_micros(elapsed),
                },
            );
        }
    }
    copied
}

#[test]
fn the_cheaper_method_is_kept_after_both_were_tried() {
    let copying_wins = |way| match way {
        Method::Copy => (100, 200),
        Method::Bypass => (300, 250),
    };
    let one = choice(Goal::Processor);
    run(&one, 2 * TRIAL_BYTES, copying_wins);
    assert_eq!(run(&one, 1 << 30, copying_wins), 1 << 30);
    let bypass_wins = |way| match way {
        Method::Copy => (300, 200),
        Method::Bypass => (100, 250),
    };
    let other = choice(Goal::Processor);
    let tried = run(&other, 2 * TRIAL_BYTES, bypass_wins);
    assert_eq!(tried, TRIAL_BYTES);
    assert_eq!(run(&other, 1 << 30, bypass_wins), 0);
    assert_eq!(
        other.describe("sendfile", "read"),
        "CPU seconds per GB: sendfile 0.095, read 0.286; seconds per GB: sendfile 0.238, read 0.191"
    );
}

#[test]
fn a_cheap_but_much_slower_method_is_not_kept() {
    for (slow, copied) in [(Method::Bypass, 1 << 20), (Method::Copy, 0)] {
        let choice = choice(Goal::Processor);
        run(&choice, 2 * TRIAL_BYTES, |way| {
            if way == slow { (100, 1000) } else { (200, 300) }
        });
        assert_eq!(run(&choice, 1 << 20, |_| (0, 0)), copied);
    }
}

/// With the bounds of [`Goal::Processor`] the cheap method would be kept: it takes less than one and a half times as long.
#[test]
fn where_both_count_a_cheap_method_that_is_slower_is_not_kept() {
    for (slow, copied) in [(Method::Bypass, 1 << 20), (Method::Copy, 0)] {
        for (elapsed, is_kept) in [(315, true), (360, false)] {
            let choice = choice(Goal::ProcessorAndTime);
            assert!(!choice.is_decided());
            let tried = run(&choice, 2 * TRIAL_BYTES, |way| {
                if way == slow {
                    (100, elapsed)
                } else {
                    (200, 300)
                }
            });
            assert_eq!(tried, TRIAL_BYTES, "both take turns");
            assert!(choice.is_decided());
            let expected = if is_kept { (1 << 20) - copied } else { copied };
            assert_eq!(run(&choice, 1 << 20, |_| (0, 0)), expected, "{slow:?}");
        }
    }
}

#[test]
fn where_time_counts_the_faster_method_is_kept() {
    for (quick, copied) in [(Method::Copy, 1 << 20), (Method::Bypass, 0)] {
        let choice = choice(Goal::Time);
        let tried = run(&choice, 2 * TRIAL_BYTES, |way| {
            if way == quick { (300, 400) } else { (100, 500) }
        });
        assert_eq!(tried, TRIAL_BYTES);
        assert_eq!(run(&choice, 1 << 20, |_| (0, 0)), copied);
    }
}

#[test]
fn where_time_counts_the_cheaper_of_two_equally_fast_methods_is_kept() {
    let choice = choice(Goal::Time);
    run(&choice, 2 * TRIAL_BYTES, |way| match way {
        Method::Copy => (300, 400),
        Method::Bypass => (100, 420),
    });
    assert_eq!(run(&choice, 1 << 20, |_| (0, 0)), 0);
}

#[test]
fn the_trial_is_repeated() {
    let choice = choice(Goal::Processor);
    run(&choice, 2 * TRIAL_BYTES + KEPT_BYTES, |way| match way {
        Method::Copy => (300, 300),
        Method::Bypass => (100, 100),
    });
    let tried = run(&choice, 3 * TRIAL_BYTES, |way| match way {
        Method::Copy => (100, 100),
        Method::Bypass => (300, 300),
    });
    assert!(tried >= TRIAL_BYTES, "{tried}");
    assert_eq!(run(&choice, 1 << 20, |_| (0, 0)), 1 << 20);
}

#[test]
fn short_pieces_are_not_measured_and_refused_methods_are_not_tried_again() {
    let choice = choice(Goal::Processor);
    assert_eq!(choice.choose(1 << 30, false), (Method::Bypass, false));
    assert_eq!(
        choice.choose((128 << 10) - 1, true),
        (Method::Bypass, false)
    );
    choice.refuse(Errno::INVAL);
    assert_eq!(choice.choose(1 << 30, true), (Method::Copy, false));
    assert_eq!(
        choice.describe("sendfile", "read"),
        "sendfile failed: Invalid argument (os error 22)"
    );
}

/// For a reason that is not an error of the kernel, such as the place of a file's bytes in memory.
#[test]
fn a_trial_ends_if_the_bypass_never_happens_and_is_repeated_later() {
    let choice = choice(Goal::Processor);
    let run = |most: u32| {
        (0..most)
            .find(|_| {
                let (method, is_measured) = choice.choose(1 << 20, true);
                if is_measured && method == Method::Bypass {
                    choice.miss();
                }
                !is_measured
            })
            .unwrap_or(most)
    };
    assert_eq!(run(1000), MOST_MISSES);
    assert_eq!(
        choice.choose(KEPT_BYTES - (2 << 20), true),
        (Method::Copy, false)
    );
    assert_eq!(
        choice.describe("sendfile", "read"),
        "sendfile was not possible for 8 ranges"
    );
    assert_eq!(choice.choose(2 << 20, true), (Method::Copy, false));
    assert_eq!(run(1000), MOST_MISSES, "another trial");
}

#[test]
fn ranges_without_the_bypass_between_others_do_not_end_a_trial() {
    let choice = choice(Goal::Processor);
    let costs = |method| match method {
        Method::Copy => (300, 300),
        Method::Bypass => (100, 100),
    };
    for _ in 0..TRIAL_BYTES >> 20 {
        for _ in 1..MOST_MISSES {
            choice.miss();
        }
        run(&choice, 2 << 20, costs);
    }
    assert_eq!(run(&choice, 1 << 20, costs), 0, "the bypass is kept");
    // No trial, so nothing is missed.
    for _ in 0..MOST_MISSES {
        choice.miss();
    }
    assert_eq!(run(&choice, 1 << 20, costs), 0);
}

#[test]
fn the_channels_of_a_route_share_a_choice_and_old_routes_are_forgotten() {
    let choices = Choices::new();
    let get = |route| choices.get(route, rule(Goal::Processor));
    let first = get(0);
    assert!(Arc::ptr_eq(&first, &get(0)));
    assert!(!Arc::ptr_eq(&first, &get(1)));
    for route in 0..=MAX_ROUTES {
        get(route);
    }
    assert!(!Arc::ptr_eq(&first, &get(0)));
}

#[test]
fn a_route_in_use_is_not_forgotten() {
    let choices = Choices::new();
    let get = |route| choices.get(route, rule(Goal::Processor));
    let (used, unused) = (get(0), get(1));
    for route in 2..3 * MAX_ROUTES {
        get(route);
        assert!(Arc::ptr_eq(&used, &get(0)));
    }
    assert!(!Arc::ptr_eq(&unused, &get(1)));
}
