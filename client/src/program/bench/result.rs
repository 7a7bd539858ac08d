//! The table of all trials, what they recommend, and why.

use gridhaul_protocol::stack::StackSpec;
use serde::Serialize;

use super::super::arguments::{Authentication, BenchArguments, ChannelArguments};
use super::super::output::{shown, shown_json};
use super::ends::Ends;
use super::law;
use super::plan::{Flow, Path};
use super::setting::Setting;
use super::trial::{Stage, Trial, rate_words};

/// A transfer that is shorter consists of its commands to a part that matters.
const SHORT: f64 = 0.1;

/// The round trips of the commands of a transfer, at most, as a part of its time.
const COMMANDS: f64 = 20.0;

/// All trials.
#[derive(Debug)]
pub(super) struct Results {
    urls: Vec<String>,
    ends: [String; 2],
    path: Path,
    rounds: u8,
    seconds: u64,
    channels: ChannelArguments,
    pub(super) trials: Vec<Trial>,
    /// The bytes of the budget are used up.
    pub(super) is_spent: bool,
    left_out: Vec<LeftOut>,
    recommended: Option<Recommended>,
}

/// What was not tried.
#[derive(Debug, Clone, Serialize)]
struct LeftOut {
    tried: &'static str,
    reason: String,
}

#[derive(Debug, Clone, Serialize)]
struct Recommended {
    command: String,
    stack: Option<String>,
    parallel: u8,
    block_bytes: Option<usize>,
    bytes_per_second: f64,
    reasons: Vec<String>,
}

/// A trial, for programs.
#[derive(Debug, Serialize)]
struct Row<'a> {
    tried: &'static str,
    stack: Option<String>,
    parallel: u8,
    block_bytes: Option<usize>,
    /// What there were: a server may have opened fewer.
    channels: usize,
    bytes: u64,
    seconds: f64,
    /// The median of the rounds.
    bytes_per_second: f64,
    /// Of each round, the slowest first.
    rounds: Vec<f64>,
    spread_percent: f64,
    /// The processors that this program has used.
    processors: f64,
    machine_busy_percent: Option<f64>,
    sent_again: Option<u64>,
    /// How the bytes were moved on this machine, where its driver had a choice.
    movement: Option<&'a str>,
    error: Option<&'a str>,
}

impl Results {
    pub(super) fn new(arguments: &BenchArguments, ends: &Ends, path: Path) -> Self {
        Self {
            urls: arguments.urls.clone(),
            ends: ends.words(),
            path,
            rounds: arguments.rounds,
            seconds: arguments.duration.as_secs(),
            channels: arguments.channels.clone(),
            trials: Vec::new(),
            is_spent: false,
            left_out: Vec::new(),
            recommended: None,
        }
    }

    pub(super) fn leave_out(&mut self, stage: Stage, reason: String) {
        let tried = stage.name();
        self.left_out.push(LeftOut { tried, reason });
    }

    /// Recommends one of the trials.
    pub(super) fn decide(&mut self) {
        if self.is_spent {
            let reason = "further trials would move more bytes than --most allows".to_owned();
            let tried = "more";
            self.left_out.push(LeftOut { tried, reason });
        }
        self.recommended = law::choose(&self.trials).map(|choice| {
            let trial = &self.trials[choice.index];
            let setting = &trial.setting;
            let mut reasons = choice.reasons;
            reasons.extend(self.doubt(trial));
            Recommended {
                command: self.command(setting),
                stack: setting.stack.as_ref().map(StackSpec::to_string),
                parallel: setting.parallel,
                block_bytes: setting.block_bytes,
                bytes_per_second: trial.rate(),
                reasons,
            }
        });
    }

    /// Whether the commands of transfers are a part of the rates.
    fn doubt(&self, trial: &Trial) -> Option<String> {
        let seconds = trial.transfer_seconds();
        let is_short = seconds < SHORT || seconds < self.path.round_trip * COMMANDS;
        is_short.then(|| {
            format!(
                "a transfer took {:.0} ms, of which its commands are a part that matters: a larger file, or a longer --duration, gives higher rates",
                seconds * 1e3
            )
        })
    }

    /// What copies with this setting, and with the options of the channels that were given.
    fn command(&self, setting: &Setting) -> String {
        let mut words = "gridhaul copy".to_owned();
        // A single file from a server over one connection would come as a stream, which was not measured.
        if self.path.flow == Flow::Get && setting.parallel == 1 {
            words += " --mode extended";
        }
        words += &format!(" {}", setting.words());
        if self.channels.protect {
            words += " --protect";
        }
        words += match self.channels.dcau {
            Some(Authentication::None) => " --dcau none",
            Some(Authentication::User) => " --dcau self",
            None => "",
        };
        words + " SRC DST"
    }

    pub(super) fn has_any(&self) -> bool {
        self.recommended.is_some()
    }

    pub(super) fn json(&self) -> String {
        let rows: Vec<Row<'_>> = self.trials.iter().map(Row::of).collect();
        let [source, destination] = &self.ends;
        let document = serde_json::json!({
            "urls": self.urls,
            "source": source,
            "destination": destination,
            "round_trip_seconds": self.path.round_trip,
            "trials": rows,
            "recommended": self.recommended,
            "not_tried": self.left_out,
        });
        shown_json(&document.to_string())
    }

    pub(super) fn text(&self) -> String {
        let [source, destination] = self.ends.each_ref().map(|end| shown(end.as_bytes()));
        let mut text = format!(
            "from   {source}\nto     {destination}\nround trip {:.1} ms; {} of about {} s for each trial, in turn; rates are medians\n\n",
            self.path.round_trip * 1e3,
            match self.rounds {
                1 => "1 round".to_owned(),
                rounds => format!("{rounds} rounds"),
            },
            self.seconds
        );
        text += "tried        connections          rate  spread  processors  sent again  stack\n";
        for trial in &self.trials {
            text += &line(trial);
        }
        if let Some(found) = &self.recommended {
            let command = shown(found.command.as_bytes());
            text += &format!("\nrecommended: {command}\nwhy:\n");
            for reason in &found.reasons {
                text += &format!("- {}\n", shown(reason.as_bytes()));
            }
        }
        if !self.left_out.is_empty() {
            text += "not tried:\n";
        }
        for LeftOut { tried, reason } in &self.left_out {
            text += &format!("- {tried}: {}\n", shown(reason.as_bytes()));
        }
        text
    }
}

/// A line of the table.
fn line(trial: &Trial) -> String {
    let setting = shown(trial.setting.name().as_bytes());
    let (tried, count) = (trial.stage.name(), trial.setting.parallel);
    if !trial.counts() {
        return format!(
            "{tried:<12} {count:>11}        failed {:>33}{setting}\n",
            ""
        );
    }
    let again = trial.sent_again().map(|count| count.to_string());
    format!(
        "{tried:<12} {count:>11} {:>13} {:>5.0} % {:>11.2} {:>11}  {setting}\n",
        rate_words(trial.rate()),
        trial.spread() * 100.0,
        trial.processors(),
        again.as_deref().unwrap_or("-"),
    )
}

impl<'a> Row<'a> {
    fn of(trial: &'a Trial) -> Self {
        let last = trial.samples.last();
        Self {
            tried: trial.stage.name(),
            stack: trial.setting.stack.as_ref().map(StackSpec::to_string),
            parallel: trial.setting.parallel,
            block_bytes: trial.setting.block_bytes,
            channels: last.map_or(0, |sample| sample.channels),
            bytes: trial.bytes(),
            seconds: trial.seconds(),
            bytes_per_second: trial.rate(),
            rounds: trial.rates(),
            spread_percent: trial.spread() * 100.0,
            processors: trial.processors(),
            machine_busy_percent: trial.busy().map(|busy| busy * 100.0),
            sent_again: trial.sent_again(),
            movement: last.and_then(|sample| sample.movement.as_deref()),
            error: trial.error.as_deref(),
        }
    }
}
