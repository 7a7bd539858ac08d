//! Examples of values, for errors.

use clap::CommandFactory;

use super::flags::CommandLine;

/// What a value of a setting must be, and an example of it in the file. `None` for kinds whose own errors have examples.
pub(super) fn example(key: &str) -> Option<(&'static str, &'static str)> {
    let command = CommandLine::command();
    let serve = command.find_subcommand("serve")?;
    let mut flags = serve.get_arguments();
    let flag = flags.find(|flag| flag.get_long() == Some(key))?;
    of_kind(flag.get_value_names()?.first()?)
}

/// By the name of the value in the help.
fn of_kind(value_name: &str) -> Option<(&'static str, &'static str)> {
    Some(match value_name {
        "COUNT" | "NUMBER" => ("a whole number", "100"),
        "BOOL" => ("true or false", "true"),
        "DIR" => ("a directory in quotes", "\"/srv/data\""),
        "FILE" => ("a file name in quotes", "\"/etc/gridhaul/file\""),
        "ADDRESS" => ("an address in quotes", "\"192.0.2.10\""),
        "NAMES" => ("a list of names in quotes", "[\"one\", \"two\"]"),
        "DRIVERS" => ("a list of drivers in quotes", "[\"tcp\", \"rdma\"]"),
        "NAME" | "SERVICE" => ("a name in quotes", "\"gridftp\""),
        "PATH" => ("a path in quotes", "\"/run/gridhaul/admin.sock\""),
        "SUBJECT" => ("a list of subjects in quotes", "[\"/DC=org/CN=Name\"]"),
        "STACK" => ("a driver stack in quotes", "\"tcp\""),
        "TEXT" => ("a text in quotes", "\"Welcome\""),
        _ => return None,
    })
}

/// For an error of the command line: an example of the flag, without quotes of TOML.
pub fn flag_example(key: &str) -> Option<String> {
    let (_, value) = example(key)?;
    let value = value.trim_matches(['[', ']']).replace(['"', ' '], "");
    Some(format!("--{key}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_valid() {
        let command = CommandLine::command();
        let serve = command.find_subcommand("serve").expect("serve");
        let mut found = 0;
        for key in serve.get_arguments().filter_map(|flag| flag.get_long()) {
            let Some((_, value)) = example(key).filter(|_| key != "config") else {
                continue;
            };
            found += 1;
            let text = format!("{key} = {value}\n");
            toml::from_str::<crate::config::Settings>(&text).expect(&text);
            let flag = flag_example(key).expect("the same");
            clap::Parser::try_parse_from(["gridhaul-server", &flag])
                .map(|line: CommandLine| drop(line))
                .expect(&flag);
        }
        assert!(found > 40, "{found}");
    }
}
