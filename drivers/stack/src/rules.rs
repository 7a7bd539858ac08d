//! Rules for the options that clients may set.
//!
//! Without rules for a driver, clients may set the options that the driver documents for clients ([`Audience`]), and the
//! administrator's options in the server's own stack apply to the stacks of clients too.
//!
//! Rules of the administrator replace the documented audience. Their syntax is similar to that of stacks:
//! `rdma:message<=4M;rate;provider=soft|verbs` allows clients messages of at most 4 MiB, any rate, one of two providers, and no
//! other option of `rdma`. Rules do not change the defaults of options.

use std::fmt;
use std::str::FromStr;

use crate::options::{self, Audience, OptionKind};
use crate::{Driver, StackError};

/// The options of one driver that clients may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRules {
    driver: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    option: String,
    values: Values,
}

/// The values that an option may have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    Any,
    AtMost(String),
    OneOf(Vec<String>),
}

/// Text that is not a valid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say what clients may set; that is written like \
     rdma:message<=4M;rate;provider=soft|verbs, with <= for an upper bound and = for values"
)]
pub struct OptionRulesError(String);

impl OptionRules {
    /// The name of the driver.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The rules that follow from the driver's documentation, for drivers without rules of the administrator.
    pub fn documented(driver: &dyn Driver) -> Self {
        let rules = driver.options().iter().flat_map(|option| {
            let values = match option.audience {
                Audience::Client => vec![Values::Any],
                Audience::ClientUpTo { most, or: [] } => vec![Values::AtMost(most.to_owned())],
                Audience::ClientUpTo { most, or } => {
                    let words = or.iter().map(|word| (*word).to_owned());
                    vec![
                        Values::AtMost(most.to_owned()),
                        Values::OneOf(words.collect()),
                    ]
                }
                Audience::Administrator(_) => Vec::new(),
            };
            values.into_iter().map(|values| Rule {
                option: option.name.to_owned(),
                values,
            })
        });
        Self {
            driver: driver.name().to_owned(),
            rules: rules.collect(),
        }
    }

    /// Checks that the rules are valid for their driver.
    ///
    /// # Errors
    ///
    /// When it has no such option, or a bound is not a value of the option.
    pub fn check(&self, driver: &dyn Driver) -> Result<(), StackError> {
        for rule in &self.rules {
            let known = driver.options();
            let Some(option) = known.iter().find(|known| known.name == rule.option) else {
                return Err(options::unknown(driver.name(), known, &rule.option));
            };
            if let Values::AtMost(bound) = &rule.values
                && option.kind.measure(bound).is_none()
            {
                return Err(StackError::BadValue {
                    driver: driver.name(),
                    option: option.name,
                    value: bound.clone(),
                    reason: "it is no bound for this option".to_owned(),
                    example: option.example,
                });
            }
        }
        Ok(())
    }

    /// Checks that clients may set these options of the driver. The driver itself checks the values.
    pub(crate) fn check_options(
        &self,
        driver: &dyn Driver,
        given: &[(String, String)],
    ) -> Result<(), StackError> {
        for (name, value) in given {
            let known = driver.options().iter().find(|known| known.name == name);
            let Some(known) = known else {
                return Err(options::unknown(driver.name(), driver.options(), name));
            };
            let mut of_option = self.rules.iter().filter(|rule| rule.option == *name);
            if !of_option.any(|rule| rule.values.contain(known.kind, value)) {
                return Err(StackError::OptionNotAllowed {
                    driver: driver.name(),
                    option: name.clone(),
                    value: value.clone(),
                    allowed: match known.audience {
                        Audience::Client | Audience::ClientUpTo { .. } => self.allowed(name),
                        Audience::Administrator(why) => format!(
                            "{} ({name} is for the administrator: {why})",
                            self.allowed(name)
                        ),
                    },
                });
            }
        }
        Ok(())
    }

    /// For error messages: the values that clients may set of an option, or the options that they may set instead.
    fn allowed(&self, option: &str) -> String {
        let is_named = self.rules.iter().any(|rule| rule.option == option);
        let rules = self.rules.iter();
        let rules = rules.filter(|rule| !is_named || rule.option == option);
        let rules: Vec<_> = rules.map(Rule::to_string).collect();
        if rules.is_empty() {
            return "none of its options".to_owned();
        }
        rules.join(";")
    }
}

impl Values {
    fn contain(&self, kind: OptionKind, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::AtMost(bound) => match (kind.measure(value), kind.measure(bound)) {
                (Some(value), Some(bound)) => value <= bound,
                _ => false,
            },
            Self::OneOf(values) => values.iter().any(|allowed| {
                let measured = kind.measure(value);
                allowed == value || measured.is_some() && measured == kind.measure(allowed)
            }),
        }
    }
}

impl FromStr for OptionRules {
    type Err = OptionRulesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || OptionRulesError(text.to_owned());
        let (driver, rules) = text.split_once(':').ok_or_else(syntax)?;
        let driver = name(driver).ok_or_else(syntax)?;
        let rules = rules.trim();
        let rules = match rules {
            "" => Some(Vec::new()),
            _ => rules.split(';').map(Rule::parse).collect(),
        };
        Ok(Self {
            driver,
            rules: rules.ok_or_else(syntax)?,
        })
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let (option, values) = if let Some((option, bound)) = text.split_once("<=") {
            (option, Values::AtMost(word(bound)?))
        } else if let Some((option, values)) = text.split_once('=') {
            let values: Option<Vec<_>> = values.split('|').map(word).collect();
            (option, Values::OneOf(values?))
        } else {
            (text, Values::Any)
        };
        Some(Self {
            option: name(option)?,
            values,
        })
    }
}

/// A name as in stacks, in lower case.
fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (!text.is_empty() && text.bytes().all(is_name)).then(|| text.to_ascii_lowercase())
}

/// A value. One that begins like an operator is a mistake: `=<4M` or `<=<4M`.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let is_word = !text.is_empty() && !text.starts_with(['<', '>', '=']);
    is_word.then(|| text.to_owned())
}

impl fmt::Display for OptionRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.rules.iter().map(Rule::to_string).collect();
        write!(f, "{}:{}", self.driver, rules.join(";"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = &self.option;
        match &self.values {
            Values::Any => f.write_str(option),
            Values::AtMost(bound) => write!(f, "{option}<={bound}"),
            Values::OneOf(values) => write!(f, "{option}={}", values.join("|")),
        }
    }
}

#[cfg(test)]
mod tests;
