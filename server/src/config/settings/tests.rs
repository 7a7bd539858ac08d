//! Which changes of settings a reload applies.

use std::time::Duration;

use super::*;

fn anonymous() -> Settings {
    Settings {
        anonymous: Some(true),
        ..Settings::default()
    }
}

#[test]
fn a_reload_changes_what_it_can_and_names_the_rest() {
    let running = Config::resolve(anonymous()).expect("valid");
    let changed = Settings {
        movers: Some(3),
        idle_timeout: Some(5),
        ..anonymous()
    };
    let (config, kept) = Config::resolve(changed).expect("valid").reloaded(&running);
    assert_eq!(kept, ["movers"]);
    assert_eq!(config.limits.movers, running.limits.movers);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
}

#[test]
fn the_reference_tells_which_changes_need_a_restart() {
    let page = include_str!("../../../../docs/reference/options.md");
    for (name, reload) in Settings::ALL {
        let option = format!("| `--{}` |", name.replace('_', "-"));
        // Rules have no flag.
        let Some(row) = page.lines().find(|line| line.starts_with(&option)) else {
            assert!(["authorize", "limit"].contains(name), "{name}");
            continue;
        };
        let expected = match reload {
            Reload::Live => "| live |",
            Reload::Restart => "| restart |",
        };
        assert!(row.ends_with(expected), "{row}");
    }
}
