//! Which setting is recommended, and why. A function of what trials have measured; no clock, no server.
//!
//! The first stage finds the smallest number of connections near the best rate. Each later stage measures that setting again, beside
//! others, and keeps it unless another one is clearly better.

use super::reasons;
use super::trial::{NEAR, Stage, Trial, WORTH};

/// A lower rate without losses may cost this part.
const NO_SLOWER: f64 = 0.97;

/// What is recommended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// The trial with the setting.
    pub(super) index: usize,
    /// Sentences.
    pub(super) reasons: Vec<String>,
}

/// Chooses one of the trials; `None` if none counts.
pub(super) fn choose(trials: &[Trial]) -> Option<Choice> {
    let first = of_stage(trials, Stage::Connections);
    let mut index = connections(trials, &first)?;
    let mut reasons = reasons::of_connections(trials, &first, index);
    for stage in Stage::LATER {
        let all = of_stage(trials, stage);
        // The first one has the setting that was chosen before.
        let Some((&base, others)) = all.split_first() else {
            continue;
        };
        if trials[base].setting != trials[index].setting || others.is_empty() {
            continue;
        }
        let found = others.iter().copied().filter(|&other| match stage {
            Stage::Rate => is_cleaner(&trials[base], &trials[other]),
            _ => is_faster(&trials[base], &trials[other]),
        });
        let by_rate =
            |one: &usize, other: &usize| trials[*one].rate().total_cmp(&trials[*other].rate());
        let found: Vec<usize> = found.collect();
        let best = found.iter().copied().max_by(by_rate);
        // The cheapest of those that are near the best one.
        let near = |one: &&usize| {
            best.is_some_and(|best| trials[**one].rate() >= trials[best].rate() * NEAR)
        };
        let chosen = found.iter().find(near).copied();
        reasons.extend(reasons::of_stage(trials, base, others, chosen));
        index = chosen.unwrap_or(base);
    }
    reasons.extend(reasons::of_limits(&trials[index]));
    Some(Choice { index, reasons })
}

/// The trials of a stage that count.
fn of_stage(trials: &[Trial], stage: Stage) -> Vec<usize> {
    let counts = |index: &usize| trials[*index].stage == stage && trials[*index].counts();
    (0..trials.len()).filter(counts).collect()
}

/// The smallest number of connections near the best rate; with the same number, the stack that was named first.
fn connections(trials: &[Trial], all: &[usize]) -> Option<usize> {
    let best = all
        .iter()
        .fold(0.0, |best: f64, &one| best.max(trials[one].rate()));
    let near = all
        .iter()
        .copied()
        .filter(|&one| trials[one].rate() >= best * NEAR);
    near.min_by_key(|&one| trials[one].setting.parallel)
}

/// Whether another setting brings so much that noise does not explain it: its slowest round is faster than the fastest one of the base.
fn is_faster(base: &Trial, other: &Trial) -> bool {
    other.rate() >= base.rate() * WORTH && other.lowest() > base.highest()
}

/// Whether a lower rate halves what is sent again, and costs next to nothing, or is faster.
fn is_cleaner(base: &Trial, other: &Trial) -> bool {
    let again = base
        .sent_again_each_gigabyte()
        .zip(other.sent_again_each_gigabyte());
    let is_halved = again.is_some_and(|(before, now)| now * 2.0 <= before && before > 0.0);
    (is_halved && other.rate() >= base.rate() * NO_SLOWER) || is_faster(base, other)
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::stack::StackSpec;
    use proptest::prelude::*;

    use super::super::setting::Setting;
    use super::super::trial::tests::trial;
    use super::*;

    fn setting(parallel: u8, stack: Option<&str>) -> Setting {
        Setting {
            stack: stack.map(|stack| StackSpec::parse(stack).expect("a stack")),
            parallel,
            block_bytes: None,
        }
    }

    fn connections_of(rates: &[(u8, f64)]) -> Vec<Trial> {
        let one = |&(parallel, rate): &(u8, f64)| {
            trial(Stage::Connections, setting(parallel, None), &[rate; 3])
        };
        rates.iter().map(one).collect()
    }

    #[test]
    fn the_smallest_number_near_the_best_rate_is_chosen() {
        let mut trials = connections_of(&[
            (1, 250.0),
            (2, 500.0),
            (4, 950.0),
            (8, 1000.0),
            (16, 2000.0),
        ]);
        trials[4].error = Some("broken".to_owned());
        let choice = choose(&trials).expect("there are rates");
        assert_eq!(choice.index, 2);
        let words = choice.reasons.join("\n");
        assert!(
            words.contains("8 connections: 1.0 GB/s, 5 % more"),
            "{words}"
        );
        assert!(
            words.contains("2 connections: 500.0 MB/s, 47 % less"),
            "{words}"
        );
        for trial in &mut trials {
            trial.error = Some("broken".to_owned());
        }
        assert_eq!(choose(&trials), None);
    }

    #[test]
    fn another_stack_must_be_better_or_need_fewer_connections() {
        let mut trials = connections_of(&[(1, 500.0), (4, 900.0)]);
        trials.push(trial(
            Stage::Connections,
            setting(1, Some("rdma")),
            &[950.0; 3],
        ));
        assert_eq!(choose(&trials).map(|choice| choice.index), Some(2));
        trials[0] = trial(Stage::Connections, setting(1, None), &[920.0; 3]);
        assert_eq!(choose(&trials).map(|choice| choice.index), Some(0));
    }

    #[test]
    fn noise_changes_no_option() {
        let mut trials = connections_of(&[(1, 500.0)]);
        let blocks =
            |bytes, rates: &[f64]| trial(Stage::Blocks, setting(1, None).with_blocks(bytes), rates);
        trials.push(trial(
            Stage::Blocks,
            setting(1, None),
            &[480.0, 500.0, 510.0],
        ));
        // One of its rounds is slower than one of the base.
        trials.push(blocks(4 << 20, &[505.0, 600.0, 610.0]));
        let choice = choose(&trials).expect("rates");
        assert_eq!(choice.index, 1);
        let words = choice.reasons.join("\n");
        assert!(words.contains("default stack, blocks of 4M"), "{words}");
        trials[2] = blocks(4 << 20, &[590.0, 600.0, 610.0]);
        assert_eq!(choose(&trials).map(|choice| choice.index), Some(2));
        // A stage whose own base is missing is not compared with another time.
        trials[1].error = Some("broken".to_owned());
        assert_eq!(choose(&trials).map(|choice| choice.index), Some(0));
    }

    #[test]
    fn a_lower_rate_is_chosen_for_fewer_losses_only() {
        let slow = |rate: &str, measured, again| {
            let stack = format!("auto:rate={rate}");
            let mut trial = trial(Stage::Rate, setting(1, Some(&stack)), &[measured; 3]);
            trial.samples[0].facts.sent_again = Some(again);
            trial.samples[1].facts.sent_again = Some(0);
            trial.samples[2].facts.sent_again = Some(0);
            trial
        };
        let mut base = slow("1g", 500.0, 9000);
        base.setting = setting(1, None);
        let mut trials = connections_of(&[(1, 500.0)]);
        trials.extend([base, slow("3g", 400.0, 0), slow("4g", 490.0, 8000)]);
        assert_eq!(choose(&trials).map(|choice| choice.index), Some(1));
        trials[3] = slow("4g", 490.0, 100);
        let choice = choose(&trials).expect("rates");
        assert_eq!(choice.index, 3);
        let words = choice.reasons.join("\n");
        assert!(words.contains("sent again"), "{words}");
    }

    /// Any trials: several numbers of connections, and others of a later stage beside that which the law chooses.
    fn any_trials() -> impl Strategy<Value = Vec<Trial>> {
        let rates = || prop::collection::vec(0.1_f64..10_000.0, 1..4);
        let first = prop::collection::vec((1_u8..=64, rates(), any::<bool>()), 1..8);
        let later = prop::collection::vec(rates(), 1..4);
        (first, later, 0_usize..3).prop_map(|(first, later, stage)| {
            let mut trials = Vec::new();
            for (parallel, rates, fails) in first {
                let mut one = trial(Stage::Connections, setting(parallel, None), &rates);
                one.error = fails.then(|| "broken".to_owned());
                trials.push(one);
            }
            let Some(base) = choose(&trials).map(|choice| trials[choice.index].setting.clone())
            else {
                return trials;
            };
            for (at, rates) in later.iter().enumerate() {
                let setting = match at {
                    0 => base.clone(),
                    _ => base.with_blocks(at << 20),
                };
                trials.push(trial(Stage::LATER[stage], setting, rates));
            }
            trials
        })
    }

    proptest! {
        #[test]
        fn the_choice_counts_is_near_the_best_and_has_no_more_connections_than_that_needs(trials in any_trials()) {
            let complete: Vec<&Trial> = trials
                .iter()
                .filter(|trial| trial.stage == Stage::Connections && trial.counts())
                .collect();
            let Some(choice) = choose(&trials) else {
                prop_assert!(complete.is_empty());
                return Ok(());
            };
            let chosen = &trials[choice.index];
            prop_assert!(chosen.counts());
            prop_assert!(!choice.reasons.is_empty());
            let best = complete.iter().fold(0.0_f64, |best, trial| best.max(trial.rate()));
            let count = chosen.setting.parallel;
            for other in &complete {
                let is_fewer = other.setting.parallel < count;
                prop_assert!(!is_fewer || other.rate() < best * NEAR);
            }
            let near = complete.iter().find(|trial| trial.setting.parallel == count && trial.rate() >= best * NEAR);
            prop_assert!(near.is_some());
        }

        #[test]
        fn another_option_is_worth_it(trials in any_trials()) {
            let Some(choice) = choose(&trials) else { return Ok(()) };
            let chosen = &trials[choice.index];
            let base = trials.iter().find(|trial| trial.stage == chosen.stage);
            if let (Some(base), true) = (base, chosen.stage != Stage::Connections)
                && base.setting != chosen.setting
            {
                prop_assert!(chosen.rate() >= base.rate() * WORTH);
                prop_assert!(chosen.lowest() > base.highest());
            }
        }

        /// The unit of rates does not matter.
        #[test]
        fn a_path_that_is_faster_in_all_trials_has_the_same_choice(trials in any_trials(), power in 0_i32..8) {
            let before = choose(&trials).map(|choice| choice.index);
            let mut faster = trials.clone();
            for sample in faster.iter_mut().flat_map(|trial| &mut trial.samples) {
                sample.seconds /= f64::from(1 << power);
            }
            prop_assert_eq!(choose(&faster).map(|choice| choice.index), before);
        }
    }
}
