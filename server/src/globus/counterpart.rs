//! Flags of globus-gridftp-server on the command line of this server.

use super::option::{Fate, Kind};
use super::table;
use crate::config::ForeignFlag;

/// What takes the place of a flag of globus-gridftp-server, whose name is without dashes.
pub fn counterpart(name: &str) -> Option<ForeignFlag> {
    let positive = name.strip_prefix("no-");
    let option = table::by_flag(name).or_else(|| table::by_flag(positive?))?;
    let remark = table::remark(option);
    let remark = match remark.as_str() {
        "" => String::new(),
        remark => format!(" ({remark})"),
    };
    let what = match option.fate {
        Fate::Keys(keys) => {
            let flags: Vec<String> = keys.iter().map(|key| written(key)).collect();
            format!("in its place here is {}", flags.join(" with "))
        }
        Fate::Needless => "it is not needed here".to_owned(),
        Fate::Missing | Fate::Guard => "this server has nothing in its place".to_owned(),
        Fate::Mode => "it is about how that program runs".to_owned(),
    };
    let text = format!(
        "this is a flag of globus-gridftp-server: {what}{remark}; `gridhaul-server gct` takes its whole command line"
    );
    let takes_value = !matches!(option.kind, Kind::Switch(_));
    Some(ForeignFlag { text, takes_value })
}

/// A setting on the command line; tables are in the file only.
fn written(key: &str) -> String {
    match key {
        "authorize" | "limit" => format!("[[{key}]] in the file of --config"),
        _ => format!("--{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_known_by_all_their_names() {
        for (name, words, takes_value) in [
            ("p", "here is --listen", true),
            ("port", "here is --listen", true),
            ("d", "here is --log-level", true),
            ("aa", "here is --anonymous with --anonymous-write", false),
            ("Z", "here is --transfer-log", true),
            ("c", "--config names a TOML file", true),
            ("inetd", "start gridhaul-server gct -i there", false),
            ("no-chdir", "flag of globus-gridftp-server", false),
        ] {
            let flag = counterpart(name).expect(name);
            assert!(flag.text.contains(words), "{name}: {}", flag.text);
            assert_eq!(flag.takes_value, takes_value, "{name}");
        }
        assert!(counterpart("nonsense").is_none());
    }
}
