use proptest::prelude::*;

use super::*;
use crate::config::Settings;

fn facts() -> Facts<'static> {
    Facts {
        is_root: true,
        has_credential: true,
        port: 2811,
        base: PathBuf::from("/"),
        resolve: &|_| None,
    }
}

/// Options with values, as a file has them.
fn given(lines: &[(&str, &str)]) -> Given {
    let mut given = Given::default();
    for (number, (name, value)) in lines.iter().enumerate() {
        let option = table::by_key(name).expect("an option");
        let placed = Placed {
            value: Value::parse(option.kind, value).expect("a value"),
            place: Place::Line("conf".into(), number + 1),
            written: format!("{name} {value}"),
        };
        given.set(option, placed);
    }
    given
}

fn settings(lines: &[(&str, &str)], facts: &Facts<'_>) -> Settings {
    let translation = translate(&given(lines), facts).expect("valid");
    toml::from_str(&translation.settings()).expect("settings")
}

#[test]
fn nothing_given_is_the_whole_file_system_for_users_with_certificates() {
    let settings = settings(&[], &facts());
    assert_eq!(settings.gsi, Some(true));
    assert_eq!(settings.root, Some("/".into()));
    assert_eq!(settings.anonymous, None);
}

#[test]
fn anonymous_users_of_root_need_an_account() {
    let without = settings(&[("allow_anonymous", "1")], &facts());
    assert_eq!(without.anonymous, None);
    let lines = [("allow_anonymous", "1"), ("anonymous_user", "ftp")];
    let with = settings(&lines, &facts());
    assert_eq!(
        (with.anonymous, with.anonymous_write),
        (Some(true), Some(true))
    );
    assert_eq!(with.user, Some("ftp".to_owned()));
    let ordinary = Facts {
        is_root: false,
        has_credential: false,
        ..facts()
    };
    let lines = [("allow_anonymous", "1"), ("allow_root", "1"), ("cas", "0")];
    let without = settings(&lines, &ordinary);
    assert_eq!((without.anonymous, without.gsi), (Some(true), None));
    // These need users with certificates.
    assert_eq!((without.allow_root, without.ignore_gsi_authz), (None, None));
}

#[test]
fn a_restriction_that_has_no_counterpart_admits_no_users() {
    let lines = [
        ("restrict_paths", "/a,/b"),
        ("allow_anonymous", "1"),
        ("anonymous_user", "ftp"),
    ];
    let translation = translate(&given(&lines), &facts()).expect("valid");
    assert!(!translation.keeps_guards());
    let text = translation.settings();
    assert!(
        text.ends_with("[[authorize]]\nidentity = \"*\"\ndeny = true\n"),
        "{text}"
    );
    assert!(!text.contains("anonymous"), "{text}");
}

#[test]
fn relative_paths_are_completed() {
    let lines = [("config_base_path", "/srv/gridftp"), ("log_single", "log")];
    let settings = settings(&lines, &facts());
    assert_eq!(settings.log_file, Some("/srv/gridftp/log".into()));
}

#[test]
fn a_host_has_the_address_of_today() {
    let found = Facts {
        resolve: &|host| (host == "here").then_some(IpAddr::from([192, 0, 2, 1])),
        ..facts()
    };
    let lines = [("control_interface", "here"), ("port", "2811")];
    let translation = translate(&given(&lines), &found).expect("valid");
    let text = translation.annotated(&[]);
    assert!(text.contains("listen = \"192.0.2.1:2811\""), "{text}");
    assert!(text.contains("that the name has today"), "{text}");
    let lines = [("control_interface", "elsewhere")];
    let error = translate(&given(&lines), &found).expect_err("no address");
    let expected =
        "conf:1: control_interface elsewhere: the host \"elsewhere\" has no address here";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn one_configuration_has_every_option() {
    let text = include_str!("../../../tests/import/everything.conf");
    for option in table::options().filter_map(|option| option.key) {
        let mut lines = text.lines();
        let is_there = lines.any(|line| line.split(' ').next() == Some(option));
        assert!(
            is_there,
            "server/tests/import/everything.conf lacks {option}"
        );
    }
}

/// Values of an option: sensible ones, extremes, and nonsense.
fn value(kind: Kind) -> BoxedStrategy<String> {
    match kind {
        Kind::Switch(_) => "[01]".boxed(),
        Kind::Number => prop_oneof!["-?[0-9]{1,6}[kKmMgG]?", Just("0".to_owned())].boxed(),
        Kind::Text => prop_oneof![
            "[RW]{0,2}[/~][a-z/.$,]{0,20}",
            "[0-7]{3,4}",
            "[0-9]{1,5}[, -][0-9]{1,5}",
            "\\PC{1,30}",
            any::<String>(),
        ]
        .boxed(),
    }
}

fn lines() -> impl Strategy<Value = Vec<(&'static GlobusOption, String)>> {
    let all: Vec<_> = table::options().collect();
    let line = proptest::sample::select(all)
        .prop_flat_map(|option| value(option.kind).prop_map(move |value| (option, value)));
    proptest::collection::vec(line, 0..12)
}

proptest! {
    /// Every option is in the output, and the output is a configuration.
    #[test]
    fn every_option_is_written_or_remarked(lines in lines(), is_root: bool, has_credential: bool) {
        let mut given = Given::default();
        for (number, (option, value)) in lines.iter().enumerate() {
            let value = Value::parse(option.kind, value);
            let Ok(value) = value else { continue };
            let place = Place::Line("conf".into(), number + 1);
            given.set(option, Placed { value, place, written: option.name().to_owned() });
        }
        let facts = Facts { is_root, has_credential, ..facts() };
        if let Ok(translation) = translate(&given, &facts) {
            let text = translation.annotated(&["conf".to_owned()]);
            for (option, _) in &lines {
                if let Some(placed) = given.get(option.name()) {
                    let origin = format!("# {}: {}\n", placed.place, option.name());
                    prop_assert!(text.contains(&origin), "{} of {text}", option.name());
                }
            }
            for text in [&text, &translation.settings()] {
                let settings = toml::from_str::<Settings>(text);
                prop_assert!(settings.is_ok(), "{settings:?}: {text}");
            }
        }
    }
}
