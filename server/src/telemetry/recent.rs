//! The latest refusals and the latest warnings and errors, for administrators who look at the page instead of the log.
//!
//! Clients choose the texts, so both lists are bounded in the number and the length of their entries.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::locks::lock;
use crate::status::{ErrorStatus, MOST_PROBLEMS, RefusalStatus, utc};

/// The most characters of a text that is kept.
const MOST_CHARACTERS: usize = 1000;

/// The warnings and errors of this process. It is global as the log is.
pub(crate) static PROBLEMS: Problems = Problems::new();

/// The latest refusals.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<VecDeque<RefusalStatus>>);

impl Refusals {
    /// Adds a refusal. The oldest one is dropped if there are too many.
    pub(crate) fn add(&self, refusal: RefusalStatus) {
        let refusal = RefusalStatus {
            time: cut(&refusal.time),
            event: cut(&refusal.event),
            peer: cut(&refusal.peer),
            user: refusal.user.as_deref().map(cut),
            identity: refusal.identity.as_deref().map(cut),
            reason: cut(&refusal.reason),
        };
        let mut all = lock(&self.0);
        all.truncate(MOST_PROBLEMS - 1);
        all.push_front(refusal);
    }

    /// The refusals, newest first.
    pub(crate) fn list(&self) -> Vec<RefusalStatus> {
        lock(&self.0).iter().cloned().collect()
    }
}

/// The latest lines of the log at the levels WARN and ERROR. Equal ones are counted together.
#[derive(Debug)]
pub(crate) struct Problems {
    lines: Mutex<VecDeque<ErrorStatus>>,
    total: AtomicU64,
}

impl Problems {
    pub(crate) const fn new() -> Self {
        Self {
            lines: Mutex::new(VecDeque::new()),
            total: AtomicU64::new(0),
        }
    }

    /// The lines, newest first.
    pub(crate) fn list(&self) -> Vec<ErrorStatus> {
        lock(&self.lines).iter().cloned().collect()
    }

    /// The number of all lines since the start.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn add(&self, level: Level, message: String, now: SystemTime) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let level = level.to_string();
        let mut lines = lock(&self.lines);
        let known = lines
            .iter()
            .position(|line| line.message == message && line.level == level);
        let count = known
            .and_then(|index| lines.remove(index))
            .map_or(0, |line| line.count);
        lines.truncate(MOST_PROBLEMS - 1);
        lines.push_front(ErrorStatus {
            time: utc(now),
            level,
            message,
            count: count + 1,
        });
    }
}

/// The layer that collects the lines of the levels WARN and ERROR in `problems`. Its filter tells `tracing` that no other events need
/// be made for it.
pub(super) fn collect<S>(problems: &'static Problems) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Collect(problems).with_filter(LevelFilter::WARN)
}

#[derive(Debug)]
struct Collect(&'static Problems);

impl<S: Subscriber> Layer<S> for Collect {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let fields = metadata.fields();
        // Refusals are a list of their own; in this one they would replace everything else.
        if fields.field("count").is_some() && fields.field("untold").is_some() {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let Text { message, rest } = text;
        self.0
            .add(*metadata.level(), message.0 + &rest.0, SystemTime::now());
    }
}

/// The message and the other fields of a line. The session is left out, so that the same problem of many sessions is one entry.
#[derive(Default)]
struct Text {
    message: Bounded,
    rest: Bounded,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // What does not fit is left out.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "session" => Ok(()),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }
}

/// A text that takes no more than half of [`MOST_CHARACTERS`].
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let most = MOST_CHARACTERS / 2;
        let room = most.saturating_sub(self.0.chars().count());
        if text.chars().nth(room).is_none() {
            self.0.push_str(text);
            return Ok(());
        }
        // An error ends the formatting of long values.
        self.0.extend(text.chars().take(room));
        self.0.pop();
        self.0.push('…');
        Err(fmt::Error)
    }
}

/// The text, or its beginning and a mark.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(MOST_CHARACTERS - 1)
            .chain(['…'])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn refusal(number: usize, reason: &str) -> RefusalStatus {
        RefusalStatus {
            time: utc(SystemTime::UNIX_EPOCH),
            event: "login failed".to_owned(),
            peer: format!("192.0.2.1:{number}"),
            user: Some("x".repeat(5000)),
            identity: None,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_flood_of_refusals_leaves_the_newest_with_bounded_texts() {
        let refusals = Refusals::default();
        for number in 0..10_000 {
            refusals.add(refusal(number, &"ü".repeat(1000)));
        }
        let list = refusals.list();
        assert_eq!(list.len(), MOST_PROBLEMS);
        assert_eq!(list[0].peer, "192.0.2.1:9999");
        assert_eq!(list[MOST_PROBLEMS - 1].peer, "192.0.2.1:9800");
        assert_eq!(list[0].reason.chars().count(), MOST_CHARACTERS);
        let user = list[0].user.as_ref().expect("a user");
        assert_eq!(user.chars().count(), MOST_CHARACTERS);
        assert!(user.ends_with('…'), "{user}");
    }

    /// The list after `log` has written lines.
    fn logged(log: impl FnOnce()) -> &'static Problems {
        let problems: &'static Problems = Box::leak(Box::new(Problems::new()));
        let subscriber = tracing_subscriber::registry().with(collect(problems));
        tracing::subscriber::with_default(subscriber, log);
        problems
    }

    #[test]
    fn equal_warnings_of_many_sessions_are_counted_together() {
        let problems = logged(|| {
            for session in 0..5 {
                tracing::warn!(session, reason = "expired", "a credential cannot be used");
            }
            tracing::error!(error = %"No space left", "the transfer log cannot be written");
            tracing::warn!(
                session = 9,
                reason = "expired",
                "a credential cannot be used"
            );
            tracing::info!("not a problem");
        });
        let list = problems.list();
        let texts: Vec<_> = list
            .iter()
            .map(|line| (line.level.as_str(), line.message.as_str(), line.count))
            .collect();
        assert_eq!(
            texts,
            [
                ("WARN", "a credential cannot be used reason=\"expired\"", 6),
                (
                    "ERROR",
                    "the transfer log cannot be written error=No space left",
                    1
                ),
            ]
        );
        assert_eq!(problems.total(), 7);
    }

    #[test]
    fn refusals_do_not_replace_errors_and_long_lines_are_cut() {
        let long = "x".repeat(100_000);
        let problems = logged(|| {
            tracing::error!(%long, "{long}");
            for count in 0..1000 {
                tracing::warn!(count, untold = 0, "login failed");
                tracing::warn!(count, "another");
            }
        });
        let list = problems.list();
        assert_eq!(list.len(), MOST_PROBLEMS);
        assert!(list.iter().all(|line| line.message.starts_with("another")));
        let problems = logged(|| tracing::error!(%long, "{long}"));
        let message = &problems.list()[0].message;
        assert_eq!(message.chars().count(), MOST_CHARACTERS);
        assert!(message.ends_with('…'), "{message}");
    }
}
