//! Sentences with the numbers that a recommendation rests on.

use std::time::Duration;

use super::super::report::amount;
use super::setting::Transport;
use super::trial::{NEAR, Trial, WORTH, rate_words};

/// From this part of the time on, full windows, or busy processors, are what limits.
const LIMITS: f64 = 0.5;
const BUSY: f64 = 0.9;

/// Why this number of connections, of the trials `all`.
pub(super) fn of_connections(trials: &[Trial], all: &[usize], chosen: usize) -> Vec<String> {
    let of = &trials[chosen];
    let count = of.setting.parallel;
    let same = || {
        let same = all.iter().map(|&one| &trials[one]);
        same.filter(|trial| trial.setting.stack == of.setting.stack)
    };
    let mut reasons = vec![format!("{}: {}", connections(count), rate_words(of.rate()))];
    let below = same().filter(|trial| trial.setting.parallel < count);
    if let Some(below) = below.max_by_key(|trial| trial.setting.parallel) {
        reasons[0] += &format!(
            "; {}: {}, {}",
            connections(below.setting.parallel),
            rate_words(below.rate()),
            compared(below, of)
        );
    }
    let above = same().filter(|trial| trial.setting.parallel > count);
    match above.max_by(|one, other| one.rate().total_cmp(&other.rate())) {
        Some(above) => {
            reasons[0] += &format!(
                "; {}: {}, {}. The smallest number with {:.0} % of the best rate is taken",
                connections(above.setting.parallel),
                rate_words(above.rate()),
                compared(above, of),
                NEAR * 100.0
            );
        }
        None if same().count() > 1 => {
            reasons[0] += ". More connections were not tried, and may bring more";
        }
        None => {}
    }
    reasons.extend(other_stacks(trials, all, of));
    reasons.extend(
        same()
            .min_by_key(|trial| trial.setting.parallel)
            .and_then(window),
    );
    reasons
}

fn connections(count: u8) -> String {
    match count {
        1 => "1 connection".to_owned(),
        _ => format!("{count} connections"),
    }
}

/// `8 % more`, `3 % less`.
fn compared(one: &Trial, base: &Trial) -> String {
    let change = match base.rate() > 0.0 {
        true => (one.rate() / base.rate() - 1.0) * 100.0,
        false => 0.0,
    };
    match change < 0.0 {
        true => format!("{:.0} % less", -change),
        false => format!("{change:.0} % more"),
    }
}

/// The best rate of each other stack.
fn other_stacks(trials: &[Trial], all: &[usize], of: &Trial) -> Vec<String> {
    let mut best: Vec<&Trial> = Vec::new();
    for trial in all.iter().map(|&one| &trials[one]) {
        if trial.setting.stack == of.setting.stack {
            continue;
        }
        let known = best
            .iter_mut()
            .find(|known| known.setting.stack == trial.setting.stack);
        match known {
            Some(known) if known.rate() < trial.rate() => *known = trial,
            Some(_) => {}
            None => best.push(trial),
        }
    }
    let sentence = |trial: &&Trial| {
        format!(
            "{}: at best {} with {}, {}",
            trial.setting.name(),
            rate_words(trial.rate()),
            connections(trial.setting.parallel),
            compared(trial, of)
        )
    };
    best.iter().map(sentence).collect()
}

/// What TCP says about the few connections that were slower, or the same.
fn window(trial: &Trial) -> Option<String> {
    let [receiver, buffer] = trial.limited()?;
    let (part, what) = match receiver >= buffer {
        true => (receiver, "the window of the receiver"),
        false => (buffer, "the send buffer of this machine"),
    };
    if part < LIMITS || trial.setting.transport() != Transport::Tcp {
        return None;
    }
    let count = trial.setting.parallel;
    let seconds = Duration::from_micros(trial.facts().round_trip?).as_secs_f64();
    let each = trial.rate() / f64::from(count.max(1));
    Some(format!(
        "with {} {what} was full {:.0} % of the time: a connection had {:.2} MB on its way for each round trip of {:.1} ms, hence {}",
        connections(count),
        part * 100.0,
        each * seconds / 1e6,
        seconds * 1e3,
        rate_words(each)
    ))
}

/// Why a setting of a later stage, or none of them.
pub(super) fn of_stage(
    trials: &[Trial],
    base: usize,
    others: &[usize],
    chosen: Option<usize>,
) -> Vec<String> {
    let base = &trials[base];
    let sentences = others.iter().map(|&other| {
        let trial = &trials[other];
        let decision = match chosen == Some(other) {
            true => "taken".to_owned(),
            false if chosen.is_some() => "not taken".to_owned(),
            false => format!(
                "not taken, because it does not bring {:.0} % more in every round",
                (WORTH - 1.0) * 100.0
            ),
        };
        format!(
            "{}: {}, {}{}{}; {decision}",
            trial.setting.name(),
            rate_words(trial.rate()),
            compared(trial, base),
            again(base, trial),
            paced(trial)
        )
    });
    sentences.collect()
}

/// What was sent again before and now, if both are known and there was any.
fn again(base: &Trial, trial: &Trial) -> String {
    match (
        base.sent_again_each_gigabyte(),
        trial.sent_again_each_gigabyte(),
    ) {
        (Some(before), Some(now)) if before > 0.0 || now > 0.0 => {
            format!(", {now:.1} segments for each gigabyte sent again in place of {before:.1}")
        }
        _ => String::new(),
    }
}

/// The rate that each connection was held to.
fn paced(trial: &Trial) -> String {
    let rate = trial.facts().paced.map(amount);
    rate.map_or_else(String::new, |rate| {
        format!(", each connection paced to {rate}/s")
    })
}

/// What limits the recommended setting, as far as this machine knows.
pub(super) fn of_limits(trial: &Trial) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(busy) = trial.busy().filter(|busy| *busy >= BUSY) {
        reasons.push(format!(
            "the processors of this machine were busy {:.0} %: they may limit the rate in place of the network",
            busy * 100.0
        ));
    }
    if trial.setting.parallel == 1 && trial.processors() >= BUSY {
        reasons.push(format!(
            "gridhaul used {:.2} processors for 1 connection, which one thread serves",
            trial.processors()
        ));
    }
    if let Some(again) = trial.sent_again().filter(|again| *again > 0) {
        reasons.push(format!(
            "{again} segments were sent again for {}",
            amount(trial.bytes())
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::super::clock::Work;
    use super::super::setting::Setting;
    use super::super::trial::Stage;
    use super::super::trial::tests::trial;
    use super::*;

    fn of_count(parallel: u8, rate: f64) -> Trial {
        let setting = Setting {
            stack: None,
            parallel,
            block_bytes: None,
        };
        trial(Stage::Connections, setting, &[rate; 3])
    }

    #[test]
    fn a_full_window_is_told_with_its_size() {
        let mut one = of_count(1, 84.0);
        for sample in &mut one.samples {
            sample.facts.busy = 1000;
            sample.facts.receiver_limited = 870;
            sample.facts.round_trip = Some(50_000);
        }
        let trials = [one, of_count(8, 600.0)];
        let words = of_connections(&trials, &[0, 1], 1).join("\n");
        let expected = "with 1 connection the window of the receiver was full 87 % of the time: a connection had 4.20 MB on its way for each round trip of 50.0 ms";
        assert!(words.contains(expected), "{words}");
        assert!(words.contains("More connections were not tried"), "{words}");
        let mut trials = trials;
        for sample in &mut trials[0].samples {
            sample.facts.receiver_limited = 100;
        }
        let words = of_connections(&trials, &[0, 1], 1).join("\n");
        assert!(!words.contains("window"), "{words}");
    }

    #[test]
    fn busy_processors_and_losses_are_told() {
        let mut one = of_count(1, 1000.0);
        assert_eq!(of_limits(&one), Vec::<String>::new());
        for sample in &mut one.samples {
            sample.facts.sent_again = Some(7);
            sample.work = Work {
                processors: 0.97,
                busy: Some(0.98),
            };
        }
        let words = of_limits(&one).join("\n");
        assert!(words.contains("were busy 98 %"), "{words}");
        assert!(
            words.contains("0.97 processors for 1 connection"),
            "{words}"
        );
        assert!(
            words.contains("21 segments were sent again for 3.0 GB"),
            "{words}"
        );
    }
}
