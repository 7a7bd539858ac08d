use proptest::prelude::*;

use super::*;
use crate::options::{OptionDoc, OptionKind};
use crate::{Fault, Memory, Null, Trace};

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(Null);
    registry.register(Memory);
    registry.register(Fault);
    registry
}

fn build(stack: &str) -> Result<Stack, StackError> {
    registry().build(&StackSpec::parse(stack).unwrap())
}

#[test]
fn builds_registered_drivers() {
    for stack in [
        "null",
        "memory",
        "memory:buffer=1M,fault:short=1;seed=3,fault",
    ] {
        build(stack).unwrap();
    }
}

#[test]
fn errors_name_the_cause_and_the_alternatives() {
    for (stack, words) in [
        (
            "tpc:port=1",
            "there is no driver \"tpc\"; the drivers are: null, memory, fault",
        ),
        (
            "null:byte=1",
            "the driver null has no option \"byte\"; its options are, with examples: bytes=1G (administrator only)",
        ),
        (
            "null:bytes=1;bytes=2",
            "the option bytes of the driver null is given twice",
        ),
        (
            "null:bytes=many",
            "the value \"many\" of the option bytes of the driver null is wrong: it is not a \
             number of bytes; an example is bytes=1G",
        ),
        (
            "fault,memory",
            "the driver fault is not a transport and cannot come first; the stack starts with \
             its transport, as in tcp,fault",
        ),
        (
            "memory,null",
            "the driver null is a transport and must come first; there is one transport in a \
             stack",
        ),
    ] {
        assert_eq!(build(stack).unwrap_err().to_string(), words);
    }
    let empty = StackSpec {
        drivers: Vec::new(),
    };
    assert_eq!(
        registry().build(&empty).unwrap_err().to_string(),
        "the driver stack is empty; the drivers are: null, memory, fault"
    );
}

#[test]
fn a_driver_without_options_says_so() {
    let options = [("verbose".to_owned(), "1".to_owned())];
    assert_eq!(
        Trace::new(|_| {}).build(&options).unwrap_err().to_string(),
        "the driver trace has no option \"verbose\"; it has no options"
    );
}

#[test]
fn the_allow_list_is_checked_before_existence() {
    let allowed = ["memory".to_owned()];
    let check = |stack| registry().check_allowed(&StackSpec::parse(stack).unwrap(), &allowed);
    assert_eq!(check("memory,memory"), Ok(()));
    assert_eq!(
        check("memory,udt,null").unwrap_err().to_string(),
        "udt driver not whitelisted"
    );
}

#[test]
fn rules_must_name_registered_drivers() {
    let check = |rules: &str| registry().check_rules(&rules.parse().unwrap());
    assert_eq!(check("memory:buffer<=1M"), Ok(()));
    assert_eq!(
        check("memroy:buffer").unwrap_err().to_string(),
        "there is no driver \"memroy\"; the drivers are: null, memory, fault"
    );
    assert!(matches!(
        check("memory:size"),
        Err(StackError::UnknownOption { .. })
    ));
}

#[test]
fn clients_set_options_for_clients_unless_rules_decide_otherwise() {
    let check = |stack: &str, rules: &[&str]| {
        let rules: Vec<_> = rules.iter().map(|rules| rules.parse().unwrap()).collect();
        registry()
            .check_options(&StackSpec::parse(stack).unwrap(), &rules)
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        check("memory:buffer=1M", &[]).unwrap_err(),
        "the administrator lets no client set buffer=1M for the driver memory; clients may set none of its \
         options (buffer is for the administrator: it is memory of the process that nothing else bounds)"
    );
    check("memory,fault:delay=1s", &[]).unwrap_err();
    check("memory:buffer=1M", &["null:bytes"]).unwrap_err();
    assert_eq!(check("memory:buffer=1M", &["memory:buffer<=1M"]), Ok(()));
    check("memory:buffer=2M", &["memory:buffer<=1M"]).unwrap_err();
}

/// A transport with options of every audience.
#[derive(Debug)]
struct Network(&'static str, &'static [OptionDoc]);

const PORT: OptionDoc = option(
    "port",
    Audience::Administrator("it is the server's"),
    "A port.",
);
const BIND: OptionDoc = option(
    "bind",
    Audience::Administrator("it is the server's"),
    "Where.",
);
const RATE: OptionDoc = option("rate", Audience::Client, "A rate.");
const OTHER_PORT: OptionDoc = option(
    "port",
    Audience::Administrator("it is the server's"),
    "A window.",
);

const fn option(name: &'static str, audience: Audience, meaning: &'static str) -> OptionDoc {
    OptionDoc::new(name, OptionKind::Number, audience, meaning, "1")
}

impl Driver for Network {
    fn name(&self) -> &'static str {
        self.0
    }

    fn options(&self) -> &'static [OptionDoc] {
        self.1
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        self.read_options(options)?;
        Memory.build(&[])
    }
}

fn networks() -> Registry {
    let mut registry = registry();
    registry.register(Network("one", &[PORT, BIND, RATE]));
    registry.register(Network("two", &[RATE, PORT]));
    registry.register(Network("else", &[OTHER_PORT]));
    registry
}

#[test]
fn the_administrators_options_apply_to_stacks_of_clients() {
    let carried = |stack: &str, own: &str| {
        let [stack, own] = [stack, own].map(|stack| StackSpec::parse(stack).unwrap());
        networks()
            .with_administrators_options(stack, &own)
            .to_string()
    };
    let own = "one:port=5;rate=6;bind=7,fault:delay=1s";
    // Options for clients are not carried over.
    assert_eq!(carried("one", own), "one:port=5;bind=7");
    assert_eq!(carried("one:rate=9", own), "one:rate=9;port=5;bind=7");
    // An option that a rule grants is kept.
    assert_eq!(carried("one:port=9", own), "one:port=9;bind=7");
    // Another transport gets options with the same meaning.
    assert_eq!(carried("two", own), "two:port=5");
    assert_eq!(carried("else", own), "else");
    // Transforms are matched by name.
    assert_eq!(carried("two,fault", own), "two:port=5,fault:delay=1s");
    assert_eq!(carried("two", "memory,one:port=5"), "two");
    assert_eq!(carried("two", "nosuchdriver:port=5"), "two");
}

proptest! {
    #[test]
    fn no_option_of_the_administrator_is_lost_and_none_of_a_client_is_changed(
        client in options(),
        own in options(),
        drivers in (0..2_usize, 0..2_usize),
    ) {
        const NAMES: [&str; 2] = ["one", "two"];
        let stack = |driver: usize, options: &Vec<(String, String)>| StackSpec {
            drivers: vec![DriverSpec { name: NAMES[driver].to_owned(), options: options.clone() }],
        };
        let carried = networks()
            .with_administrators_options(stack(drivers.0, &client), &stack(drivers.1, &own));
        let carried = &carried.drivers[0].options;
        prop_assert_eq!(&carried[..client.len()], &client[..]);
        for (name, value) in &own {
            let is_administrators = name != "rate";
            let is_known = name != "bind" || drivers == (0, 0);
            let is_given = client.iter().any(|(given, _)| given == name);
            let is_there = carried[client.len()..].contains(&(name.clone(), value.clone()));
            prop_assert_eq!(is_there, is_administrators && is_known && !is_given, "{}", name);
        }
        prop_assert!(carried[client.len()..].iter().all(|option| own.contains(option)));
    }
}

/// Options of the transports above, each at most once.
fn options() -> impl Strategy<Value = Vec<(String, String)>> {
    let names = proptest::sample::subsequence(vec!["port", "bind", "rate"], 0..=3);
    (names, 1..10_u8).prop_map(|(names, value)| {
        let option = |name: &str| (name.to_owned(), value.to_string());
        names.into_iter().map(option).collect()
    })
}

#[test]
fn a_later_driver_replaces_an_earlier_one() {
    let mut registry = registry();
    registry.register(Memory);
    assert_eq!(registry.names(), "null, fault, memory");
}

#[test]
fn the_drivers_of_one_session_are_not_those_of_another() {
    let registry = registry();
    let session = registry.with(&[Arc::new(Trace::new(|_| {})), Arc::new(Memory)]);
    assert_eq!(session.names(), "null, fault, trace, memory");
    assert_eq!(registry.names(), "null, memory, fault");
    let stack = StackSpec::parse("memory,trace").unwrap();
    session.build(&stack).unwrap();
    assert!(matches!(
        registry.build(&stack),
        Err(StackError::UnknownDriver { .. })
    ));
}
