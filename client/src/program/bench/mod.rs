//! `gridhaul bench`: the rate of a path with several options of copies, and which ones are recommended.
//!
//! ```text
//!   way, ends     transfers between the memory of this machine and a server, or between two servers
//!   round         one round of a trial ──> trial (what it has measured), clock (processor time)
//!   plan          what is tried beside the number of connections ──> setting (options)
//!   law, reasons  what is recommended, and why
//!   result        the table
//! ```

mod clock;
mod ends;
mod law;
mod plan;
mod reasons;
mod result;
mod round;
mod setting;
mod trial;
mod way;

use gridhaul_protocol::stack::StackSpec;

use self::ends::Ends;
use self::plan::{Flow, Path};
use self::result::Results;
use self::round::{Budget, Halt, Rounds};
use self::setting::Setting;
use self::trial::{Stage, Trial};
use self::way::Way;
use super::Ending;
use super::arguments::{BenchArguments, Varied};
use super::interrupt;
use super::output::{print, warn};

/// Why a benchmark does not begin.
enum BenchError {
    /// The command line is wrong.
    Usage(String),
    Failed(String),
}

impl BenchError {
    fn usage(error: impl std::fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }
}

pub(super) async fn run(arguments: &BenchArguments) -> Ending {
    let way = tokio::select! {
        way = Way::open(arguments) => way,
        () = interrupt::arrived() => return Ending::Interrupted,
    };
    let mut way = match way {
        Ok(way) => way,
        Err(BenchError::Usage(words)) => {
            warn(words);
            return Ending::Usage;
        }
        Err(BenchError::Failed(words)) => {
            warn(words);
            return Ending::Failed;
        }
    };
    let measured = tokio::select! {
        results = measure(arguments, &mut way) => Some(results),
        () = interrupt::arrived() => None,
    };
    // What is left at a server is removed also after an interruption.
    let cleared = way.close().await;
    if let Err(words) = &cleared {
        warn(words);
    }
    let Some(results) = measured else {
        return Ending::Interrupted;
    };
    let text = match arguments.json {
        true => results.json(),
        false => results.text(),
    };
    if let Err(error) = print(text.trim_end()) {
        warn(format_args!("standard output: {error}"));
        return Ending::Failed;
    }
    match cleared.is_ok() && results.has_any() {
        true => Ending::Complete,
        false => Ending::Failed,
    }
}

/// All stages: each begins with the setting that those before have chosen.
async fn measure(arguments: &BenchArguments, way: &mut Way) -> Results {
    let path = path(&way.ends);
    let mut results = Results::new(arguments, &way.ends, path);
    let mut budget = Budget::new(arguments.most);
    let settings = connections(arguments);
    let first = (Stage::Connections, settings);
    try_all(arguments, way, first, &mut budget, &mut results).await;
    for (next, varied) in [
        (Stage::Blocks, Varied::Blocks),
        (Stage::Rate, Varied::Rate),
        (Stage::Ring, Varied::Ring),
    ] {
        let Some(choice) = law::choose(&results.trials) else {
            break;
        };
        if results.is_spent || !arguments.vary.contains(&varied) {
            continue;
        }
        let base = &results.trials[choice.index];
        let settings = possible(way, next, base, path).await;
        match settings {
            Ok(settings) => {
                let next = (next, settings);
                try_all(arguments, way, next, &mut budget, &mut results).await;
            }
            Err(reason) => results.leave_out(next, reason),
        }
    }
    results.decide();
    results
}

fn path(ends: &Ends) -> Path {
    let round_trips = ends.remotes().into_iter().map(|remote| remote.round_trip);
    Path {
        flow: match ends {
            Ends::Get(_) => Flow::Get,
            Ends::Put(_) => Flow::Put,
            Ends::Between(..) => Flow::Between,
        },
        round_trip: round_trips.max().unwrap_or_default().as_secs_f64(),
    }
}

/// Each stack with each number of connections.
fn connections(arguments: &BenchArguments) -> Vec<Setting> {
    let first = std::iter::once(arguments.channels.stack.clone());
    let stacks = first.chain(arguments.also.iter().cloned().map(Some));
    let with = |stack: Option<StackSpec>| {
        let counts = arguments.parallel.iter();
        counts.map(move |&parallel| Setting {
            stack: stack.clone(),
            parallel,
            block_bytes: None,
        })
    };
    stacks.flat_map(with).collect()
}

/// The settings of a stage that all ends support, behind that of `base`. The error says why there are none.
async fn possible(
    way: &Way,
    stage: Stage,
    base: &Trial,
    path: Path,
) -> Result<Vec<Setting>, String> {
    let mut settings = vec![base.setting.clone()];
    let mut refused = None;
    for setting in plan::candidates(stage, base, path)? {
        match &setting.stack {
            Some(stack) if setting.stack != base.setting.stack && !way.takes(stack).await? => {
                refused = Some(format!("an end does not accept the stack {stack}"));
            }
            _ => settings.push(setting),
        }
    }
    match (settings.len(), refused) {
        (1, Some(refused)) => Err(refused),
        (1, None) => Err("no other value is possible".to_owned()),
        _ => Ok(settings),
    }
}

/// Makes the trials of a stage: one round of each, then the next round. What changes with time changes all of them.
async fn try_all(
    arguments: &BenchArguments,
    way: &mut Way,
    (stage, settings): (Stage, Vec<Setting>),
    budget: &mut Budget,
    results: &mut Results,
) {
    let trials = settings
        .into_iter()
        .map(|setting| Trial::new(stage, setting));
    let mut all: Vec<Rounds> = trials.map(Rounds::new).collect();
    'all: for _ in 0..arguments.rounds {
        for rounds in all.iter_mut().filter(|rounds| rounds.trial.error.is_none()) {
            match rounds.run(way, arguments.duration, budget).await {
                Ok(()) => {}
                Err(Halt::Spent) => {
                    results.is_spent = true;
                    break 'all;
                }
                Err(Halt::Failed(words)) => {
                    // The next trial may succeed, with connections of its own.
                    warn(format_args!("{}: {words}", rounds.trial.name()));
                    rounds.trial.error = Some(words);
                    way.reset();
                }
            }
        }
    }
    let trials = all.into_iter().map(|rounds| rounds.trial);
    // Those that the budget has left out were not made.
    let made = trials.filter(|trial| trial.error.is_some() || !trial.samples.is_empty());
    results.trials.extend(made);
}
