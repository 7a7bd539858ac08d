//! What clients may set of a driver's options.
//!
//! Where an administrator says nothing of a driver, clients may set what the driver documents to be for them ([`Audience`]), and
//! the options of the administrator that the server's own stack has hold for the stacks of clients too.
//!
//! Where an administrator has rules for a driver, these alone count. They are written much as clients write stacks:
//! `rdma:message<=4M;rate;provider=soft|verbs` lets clients choose messages of at most 4 MiB, any rate, one of two providers, and
//! nothing else of `rdma`. What clients do not set is as the driver has it; a rule does not change that.

use std::fmt;
use std::str::FromStr;

use crate::options::{self, Audience, OptionKind};
use crate::{Driver, StackError};

/// What clients may set of one driver's options.
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

/// Text that does not say what clients may set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say what clients may set; that is written like \
     rdma:message<=4M;rate;provider=soft|verbs"
)]
pub struct OptionRulesError(String);

impl OptionRules {
    /// The name of the driver.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// What clients may set where the administrator says nothing: what the driver documents to be for them.
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

    /// Whether the rules mean something for their driver.
    ///
    /// # Errors
    ///
    /// When it has no such option, or a bound makes no sense.
    pub fn check(&self, driver: &dyn Driver) -> Result<(), StackError> {
        for rule in &self.rules {
            let known = driver.options();
            let Some(option) = known.iter().find(|known| known.name == rule.option) else {
                return Err(options::unknown(driver, &rule.option));
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

    /// Whether clients may set these options of the driver. What is wrong with options for other reasons is for the driver
    /// to say.
    pub(crate) fn check_options(
        &self,
        driver: &dyn Driver,
        given: &[(String, String)],
    ) -> Result<(), StackError> {
        for (name, value) in given {
            let known = driver.options().iter().find(|known| known.name == name);
            let Some(known) = known else {
                return Err(options::unknown(driver, name));
            };
            let mut of_option = self.rules.iter().filter(|rule| rule.option == *name);
            if !of_option.any(|rule| rule.values.have(known.kind, value)) {
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

    /// What clients may set of an option, or instead of it.
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
    fn have(&self, kind: OptionKind, value: &str) -> bool {
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

fn word(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::OptionDoc;
    use crate::{Built, Memory};

    /// A driver with an option of each kind.
    #[derive(Debug)]
    struct Kinds;

    impl Driver for Kinds {
        fn name(&self) -> &'static str {
            "kinds"
        }

        fn options(&self) -> &'static [OptionDoc] {
            const fn option(name: &'static str, kind: OptionKind, audience: Audience) -> OptionDoc {
                OptionDoc::new(name, kind, audience, "", "1")
            }
            const {
                &[
                    option("bytes", OptionKind::Bytes, Audience::client_up_to("4M")),
                    option("rate", OptionKind::Rate, Audience::Client),
                    option(
                        "time",
                        OptionKind::Time,
                        Audience::ClientUpTo {
                            most: "2m",
                            or: &["auto", "never"],
                        },
                    ),
                    option("count", OptionKind::Number, Audience::client_up_to("8")),
                    option(
                        "word",
                        OptionKind::Word,
                        Audience::Administrator("it is a secret of the server"),
                    ),
                ]
            }
        }

        fn build(&self, _options: &[(String, String)]) -> Result<Built, StackError> {
            Memory.build(&[])
        }
    }

    fn allows(rules: &str, option: &str, value: &str) -> Result<(), String> {
        let rules: OptionRules = rules.parse().unwrap();
        rules.check(&Kinds).unwrap();
        rules
            .check_options(&Kinds, &[(option.to_owned(), value.to_owned())])
            .map_err(|error| error.to_string())
    }

    fn allows_by_default(option: &str, value: &str) -> Result<(), String> {
        OptionRules::documented(&Kinds)
            .check_options(&Kinds, &[(option.to_owned(), value.to_owned())])
            .map_err(|error| error.to_string())
    }

    #[test]
    fn without_rules_clients_set_what_the_driver_documents_for_them() {
        assert_eq!(
            OptionRules::documented(&Kinds).to_string(),
            "kinds:bytes<=4M;rate;time<=2m;time=auto|never;count<=8"
        );
        for (option, value) in [
            ("bytes", "4096K"),
            ("rate", "auto"),
            ("rate", "900g"),
            ("time", "never"),
            ("time", "120s"),
            ("count", "8"),
        ] {
            assert_eq!(allows_by_default(option, value), Ok(()), "{option}={value}");
        }
        for (option, value) in [
            ("bytes", "4097K"),
            ("bytes", "auto"),
            ("time", "always"),
            ("time", "121s"),
            ("count", "9"),
        ] {
            let refusal = allows_by_default(option, value).unwrap_err();
            assert!(refusal.contains("clients may set "), "{refusal}");
        }
        assert_eq!(
            allows_by_default("word", "1").unwrap_err(),
            "the administrator lets no client set word=1 for the driver kinds; clients may set \
             bytes<=4M;rate;time<=2m;time=auto|never;count<=8 (word is for the administrator: it is a secret of \
             the server)"
        );
    }

    #[test]
    fn what_is_for_the_administrator_is_granted_by_name_only() {
        assert_eq!(allows("kinds:word", "word", "1"), Ok(()));
        assert_eq!(allows("kinds:word=1|2", "word", "2"), Ok(()));
        allows("kinds:word=1|2", "word", "3").unwrap_err();
        allows("kinds:bytes;rate;time;count", "word", "1").unwrap_err();
    }

    proptest! {
        /// The model: who may set an option, and how far.
        #[test]
        fn documented_rules_allow_what_the_audience_says(
            option in 0..5_usize,
            number in prop_oneof![0..20_u64, (4 << 20) - 2..(4 << 20) + 3_u64, any::<u64>()],
        ) {
            let [name, most] = [
                ["bytes", "rate", "time", "count", "word"][option],
                ["4194304", "18446744073709551615", "120", "8", ""][option],
            ];
            let is_allowed = most.parse::<u64>().is_ok_and(|most| number <= most);
            prop_assert_eq!(
                allows_by_default(name, &number.to_string()).is_ok(),
                is_allowed,
                "{}={}", name, number
            );
        }
    }

    #[test]
    fn a_bound_counts_in_the_unit_of_its_option() {
        for (rules, option, most, more) in [
            ("kinds:bytes<=4M", "bytes", "4194304", "4194305"),
            ("kinds:rate<=5g", "rate", "625000000", "5001m"),
            ("kinds:time<=2m", "time", "120s", "120001ms"),
            ("kinds:count<=8", "count", "8", "9"),
        ] {
            assert_eq!(allows(rules, option, most), Ok(()));
            let (_, rule) = rules.split_once(':').unwrap();
            let words = format!(
                "the administrator lets no client set {option}={more} for the driver kinds; clients may set {rule}"
            );
            assert_eq!(allows(rules, option, more), Err(words));
        }
    }

    #[test]
    fn what_is_no_number_is_within_no_bound() {
        allows("kinds:rate<=5g", "rate", "auto").unwrap_err();
        assert_eq!(allows("kinds:rate<=5g; rate=auto", "rate", "auto"), Ok(()));
        assert_eq!(allows("kinds:rate<=5g; rate=auto", "rate", "1g"), Ok(()));
    }

    #[test]
    fn values_are_those_that_are_named() {
        assert_eq!(allows("kinds:word=soft | verbs", "word", "verbs"), Ok(()));
        assert_eq!(allows("kinds:bytes=1M|4M", "bytes", "4096K"), Ok(()));
        allows("kinds:word=soft|verbs", "word", "Verbs").unwrap_err();
    }

    #[test]
    fn other_options_are_not_for_clients() {
        assert_eq!(allows("kinds:word;rate<=5g", "word", "x,y"), Ok(()));
        assert_eq!(
            allows("kinds:word;rate<=5g", "count", "1").unwrap_err(),
            "the administrator lets no client set count=1 for the driver kinds; clients may set word;rate<=5g"
        );
        assert_eq!(
            allows("kinds:", "count", "1").unwrap_err(),
            "the administrator lets no client set count=1 for the driver kinds; clients may set none of its options"
        );
    }

    #[test]
    fn what_is_wrong_with_rules_is_said() {
        for text in [
            "",
            "kinds",
            ":word",
            "kinds:;",
            "kinds:word=",
            "kinds:w d",
            "kinds:rate<=",
        ] {
            let error = text.parse::<OptionRules>().unwrap_err();
            assert_eq!(error, OptionRulesError(text.to_owned()));
        }
        for (text, words) in [
            ("kinds:size", "has no option \"size\"; its options are"),
            (
                "kinds:word<=5",
                "the value \"5\" of the option word of the driver kinds is wrong: it is no bound",
            ),
            ("kinds:bytes<=many", "\"many\" of the option bytes"),
        ] {
            let rules: OptionRules = text.parse().unwrap();
            let error = rules.check(&Kinds).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn rules_are_shown_as_they_are_written() {
        let text = "kinds:bytes<=4M;rate;word=a|b";
        let rules: OptionRules = " KINDS : bytes <= 4M; Rate ;word=a|b".parse().unwrap();
        assert_eq!(rules.to_string(), text);
        assert_eq!(rules.driver(), "kinds");
    }
}
