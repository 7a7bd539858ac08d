//! `log-level`: the level of the log, or rules for levels.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use super::log_targets::{is_target, similar_target};
use super::similar::similar;
use super::texts::deserialize_as_text;

/// A level, or rules like `info,gridhaul_server=debug`, as `EnvFilter` of tracing-subscriber reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevel(pub String);

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

/// A text that is neither a level nor rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogLevelError {
    /// A word alone would be the name of a module, and nothing else would be logged.
    #[error(
        "'{word}' is not a level{}: use error, warn, info, debug, trace or off, or rules like \
         info,gridhaul_server=debug",
        similar(word, LEVELS)
    )]
    Level {
        /// The word.
        word: String,
    },
    /// A rule for a module that writes nothing.
    #[error(
        "no log line comes from '{target}'{}: write the rule for gridhaul_server, gridhaul_accounts, audit or rustls, or for a \
         module as the log names it, like info,gridhaul_server=debug",
        similar_target(target)
    )]
    Target {
        /// The module.
        target: String,
    },
    /// A rule for a span.
    #[error(
        "'{rule}' has no effect, because this program has no spans: write levels and MODULE=LEVEL with commas between them, \
         like info,gridhaul_server=debug"
    )]
    Span {
        /// The rule.
        rule: String,
    },
    /// The rules have another form.
    #[error(
        "'{rules}' are no rules for levels: write levels and MODULE=LEVEL with commas between them, like \
         info,gridhaul_server=debug"
    )]
    Rules {
        /// The rules.
        rules: String,
    },
}

const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace", "off"];

impl FromStr for LogLevel {
    type Err = LogLevelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        for rule in text.split(',') {
            if rule.contains(['[', ']', '{', '}']) {
                let rule = rule.to_owned();
                return Err(LogLevelError::Span { rule });
            }
            let (target, level) = match rule.split_once('=') {
                Some((target, level)) => (Some(target), Some(level)),
                // A crate of ours without a level is logged in full.
                None if rule.starts_with("gridhaul_") => (Some(rule), None),
                None => (None, Some(rule)),
            };
            if let Some(level) = level.filter(|level| !is_level(level)) {
                let word = level.to_owned();
                return Err(LogLevelError::Level { word });
            }
            if let Some(target) = target.filter(|target| !is_target(target)) {
                let target = target.to_owned();
                return Err(LogLevelError::Target { target });
            }
        }
        match EnvFilter::builder().parse(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(LogLevelError::Rules {
                rules: text.to_owned(),
            }),
        }
    }
}

/// EnvFilter also reads the numbers from 0 to 5.
fn is_level(text: &str) -> bool {
    let is_name = LEVELS.iter().any(|name| name.eq_ignore_ascii_case(text));
    is_name || matches!(text.as_bytes(), [b'0'..=b'5'])
}

deserialize_as_text!(LogLevel);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_rules_are_understood() {
        for text in [
            "error",
            "INFO",
            "off",
            "3",
            "info,gridhaul_server=debug",
            "info,rustls=warn",
            "gridhaul_server",
            "gridhaul_server::login=trace",
            "info,audit=off",
        ] {
            assert_eq!(text.parse(), Ok(LogLevel(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn words_that_would_silence_the_log_are_refused() {
        for (text, word) in [
            ("verbose", "'verbose'"),
            ("", "''"),
            ("info,", "''"),
            ("gridhaul_server=loud", "'loud'"),
            ("info,gridhaul_server=debug,all", "'all'"),
            ("6", "'6'"),
        ] {
            let error = text.parse::<LogLevel>().expect_err(text).to_string();
            assert!(error.starts_with(word), "{error}");
            assert!(error.contains("info,gridhaul_server=debug"), "{error}");
        }
        for text in ["info,[session{id=5}]=debug", "gridhaul_server[run]=trace"] {
            let error = text.parse::<LogLevel>().expect_err(text).to_string();
            assert!(error.contains("no spans"), "{error}");
        }
        for text in ["info,gridhaul_sevrer=debug", "gridhaul_sevrer"] {
            let error = text.parse::<LogLevel>().expect_err(text).to_string();
            assert!(
                error.contains("(did you mean 'gridhaul_server'?)"),
                "{error}"
            );
        }
        let error = "tokio=warn"
            .parse::<LogLevel>()
            .expect_err("no lines")
            .to_string();
        assert!(
            error.starts_with("no log line comes from 'tokio'"),
            "{error}"
        );
        let error = "inof".parse::<LogLevel>().expect_err("a typo").to_string();
        assert!(error.contains("did you mean 'info'?"), "{error}");
    }
}
