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
fn without_rules_clients_set_the_options_documented_for_them() {
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
fn administrator_options_are_granted_only_by_name() {
    assert_eq!(allows("kinds:word", "word", "1"), Ok(()));
    assert_eq!(allows("kinds:word=1|2", "word", "2"), Ok(()));
    allows("kinds:word=1|2", "word", "3").unwrap_err();
    allows("kinds:bytes;rate;time;count", "word", "1").unwrap_err();
}

proptest! {
    /// The model: the audience of an option and its bound.
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
fn words_are_within_no_bound() {
    allows("kinds:rate<=5g", "rate", "auto").unwrap_err();
    assert_eq!(allows("kinds:rate<=5g; rate=auto", "rate", "auto"), Ok(()));
    assert_eq!(allows("kinds:rate<=5g; rate=auto", "rate", "1g"), Ok(()));
}

#[test]
fn only_listed_values_are_allowed() {
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
fn errors_of_rules_name_the_cause() {
    for text in [
        "",
        "kinds",
        ":word",
        "kinds:;",
        "kinds:word=",
        "kinds:w d",
        "kinds:rate<=",
        "kinds:rate=<5",
        "kinds:rate>=5",
        "kinds:rate<5",
        "kinds:rate==5",
        "kinds:rate<=<5",
        "kinds:word=a|<b",
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
