//! `log-level`: the level of the log, or rules for levels.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

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
            let (target, level) = match rule.rsplit_once('=') {
                // A field of a span, as in `[session{id=5}]`, ends with a brace.
                Some((target, level)) if !level.contains(['}', ']']) => (Some(target), level),
                _ if rule.contains(['[', ']']) => continue,
                _ => (None, rule),
            };
            // EnvFilter also reads the numbers from 0 to 5.
            let is_level = LEVELS.iter().any(|name| name.eq_ignore_ascii_case(level))
                || matches!(level.as_bytes(), [b'0'..=b'5']);
            // A crate of ours without a level is logged in full.
            let is_ours = target.is_none() && rule.starts_with("gridhaul_");
            if !is_level && !is_ours {
                let word = level.to_owned();
                return Err(LogLevelError::Level { word });
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
            "info,tokio=warn",
            "gridhaul_server",
            "gridhaul_server::session[run]=trace",
            "info,[session{id=5}]=debug",
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
        let error = "inof".parse::<LogLevel>().expect_err("a typo").to_string();
        assert!(error.contains("did you mean 'info'?"), "{error}");
    }
}
