//! `max-startups`: the limit of connections before login.

use std::fmt;
use std::str::FromStr;

use super::texts::deserialize_as_text;

/// The limit of connections before login, in the form of OpenSSH's `MaxStartups`: `start:rate:full`.
///
/// Up to `start` connections all are accepted. Above, each new connection closes one that has waited for some seconds, with
/// a chance of `rate` percent that grows linearly to 100 percent at `full`. At `full` each new connection displaces another
/// one, of the network with most connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxStartups {
    /// The number of connections above which some are closed.
    pub start: usize,
    /// The chance at `start`, in percent.
    pub rate: usize,
    /// The largest number of connections.
    pub full: usize,
}

impl Default for MaxStartups {
    /// OpenSSH has 10:30:100. A transfer service may begin hundreds of sessions in one second, which log in at once;
    /// a connection before login holds some kilobytes.
    fn default() -> Self {
        Self {
            start: 500,
            rate: 30,
            full: 1000,
        }
    }
}

/// A text in another form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not START:PERCENT:FULL with 1 <= START <= FULL <= 1000000 and 1 <= PERCENT <= 100, like 500:30:1000"
)]
pub struct MaxStartupsError(String);

impl FromStr for MaxStartups {
    type Err = MaxStartupsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut numbers = text.split(':').map(|number| number.parse().ok());
            let (start, rate, full) = (numbers.next()??, numbers.next()??, numbers.next()??);
            let fits = (1..=full).contains(&start)
                && (1..=100).contains(&rate)
                && full <= 1_000_000
                && numbers.next().is_none();
            fits.then_some(Self { start, rate, full })
        };
        parse().ok_or_else(|| MaxStartupsError(text.to_owned()))
    }
}

impl fmt::Display for MaxStartups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.start, self.rate, self.full)
    }
}

deserialize_as_text!(MaxStartups);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_openssh_writes_them() {
        let found = "100:30:300".parse::<MaxStartups>().expect("valid");
        assert_eq!((found.start, found.rate, found.full), (100, 30, 300));
        assert_eq!(found.to_string(), "100:30:300");
        for text in [
            "", "10", "10:30", "0:30:10", "20:30:10", "1:0:2", "1:101:2", "1:2:3:4",
        ] {
            let error = text.parse::<MaxStartups>().expect_err(text);
            assert!(error.to_string().contains("500:30:1000"), "{error}");
        }
    }
}
