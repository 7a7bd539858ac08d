//! Examples of values, for errors.

use std::ops::Range;

use clap::CommandFactory;

use super::flags::CommandLine;

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Example {
    /// In words.
    pub(super) kind: &'static str,
    /// A value, as in the file.
    pub(super) value: &'static str,
    /// Texts that are no value have an error of their own, with examples.
    pub(super) has_errors: bool,
}

impl Example {
    /// Of a plain kind: a text, a number, true or false.
    pub(super) const fn plain(kind: &'static str, value: &'static str) -> Self {
        Self {
            kind,
            value,
            has_errors: false,
        }
    }

    /// Of a kind whose own errors have examples.
    pub(super) const fn own(kind: &'static str, value: &'static str) -> Self {
        Self {
            kind,
            value,
            has_errors: true,
        }
    }

    /// The example, unless what was written shows the form better when it is in quotes: `10m`.
    pub(super) fn instead_of(&self, written: &str) -> Option<&'static str> {
        let is_better = !self.value.contains('"') || written.contains(['"', '\'']);
        (!self.has_errors && is_better).then_some(self.value)
    }

    /// The error for a value of the file, with `message` of the TOML library or of the kind itself.
    pub(super) fn wrong(&self, key: &str, written: &str, message: &str) -> String {
        // Values of another type, as in `idle-timeout = [5]`, do not reach the kind itself: serde refuses them.
        let is_own = self.has_errors && !message.starts_with("invalid ");
        match is_own {
            true => format!("{key}: {message}"),
            false => format!(
                "{key}: {written} is not {}; write it like {key} = {}",
                self.kind, self.value
            ),
        }
    }
}

/// What stands at a place of the file, cut if it is long, on one line.
pub(super) fn written(text: &str, span: &Range<usize>) -> String {
    /// Longer values are cut.
    const SHOWN: usize = 60;

    let written = text.get(span.clone()).unwrap_or_default();
    written.chars().take(SHOWN).collect()
}

/// What a value of a setting must be.
pub(super) fn example(key: &str) -> Option<Example> {
    let command = CommandLine::command();
    let serve = command.find_subcommand("serve")?;
    let mut flags = serve.get_arguments();
    let flag = flags.find(|flag| flag.get_long() == Some(key))?;
    of_kind(flag.get_value_names()?.first()?)
}

/// By the name of the value in the help.
fn of_kind(value_name: &str) -> Option<Example> {
    Some(match value_name {
        "COUNT" | "NUMBER" => Example::plain("a whole number", "100"),
        "BOOL" => Example::plain("true or false", "true"),
        "DIR" => Example::plain("a directory in quotes", "\"/srv/data\""),
        "FILE" => Example::plain("a file name in quotes", "\"/etc/gridhaul/file\""),
        "ADDRESS" => Example::plain("an address in quotes", "\"192.0.2.10\""),
        "NAMES" => Example::plain("a list of names in quotes", "[\"one\", \"two\"]"),
        "DRIVERS" => Example::plain("a list of drivers in quotes", "[\"tcp\", \"rdma\"]"),
        "NAME" | "SERVICE" => Example::plain("a name in quotes", "\"gridftp\""),
        "PATH" => Example::plain("a path in quotes", "\"/run/gridhaul/admin.sock\""),
        "SUBJECT" => Example::plain("a list of subjects in quotes", "[\"/DC=org/CN=Name\"]"),
        "STACK" => Example::plain("a driver stack in quotes", "\"tcp\""),
        "TEXT" => Example::plain("a text in quotes", "\"Welcome\""),
        "TIME" => Example::own("a time", "\"10m\""),
        "SIZE" => Example::own("a number of bytes", "\"64M\""),
        "FIRST-LAST" => Example::own("a range of ports in quotes", "\"50000-51000\""),
        "OCTAL" => Example::own("a file mode in quotes", "\"0644\""),
        "ADDRESS:PORT" => Example::own("an address with a port in quotes", "\"0.0.0.0:2811\""),
        "HOSTS" | "BLOCKS" => Example::own("a list of addresses in quotes", "[\"192.0.2.0/24\"]"),
        "ADDRESSES" => Example::own("a list of addresses in quotes", "[\"192.0.2.53\"]"),
        "NODES" => Example::own("a list of nodes in quotes", "[\"dtn1.example.org:7512\"]"),
        "SERVERS" => Example::own(
            "a list of hosts or subjects in quotes",
            "[\"ctl.example.org\"]",
        ),
        "RULES" => Example::own("a list of rules in quotes", "[\"tcp:buffer<=64M\"]"),
        "VERSIONS" => Example::own("versions of TLS in quotes", "\"1.2-1.3\""),
        "KIND" => Example::own("a kind of key in quotes", "\"ec\""),
        "WHEN" => Example::own("none, close or data in quotes", "\"close\""),
        "DIRS" => Example::own("a list of roots in quotes", "[\"/srv/data\"]"),
        "CHECKSUMS" => Example::own("a text with names of checksums", "\"ADLER32,CRC32C\""),
        "FORMAT" => Example::own("a log format in quotes", "\"json\""),
        "LEVEL" => Example::own("a level in quotes", "\"info\""),
        "PROGRAM" => Example::own(
            "the path of a program in quotes",
            "\"/usr/libexec/callout\"",
        ),
        "START:PERCENT:FULL" => Example::own("three numbers in quotes", "\"500:30:1000\""),
        _ => return None,
    })
}

/// For an error of the command line: an example of the flag, without quotes of TOML.
pub(super) fn flag_example(key: &str) -> Option<String> {
    let value = example(key)?.value;
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
        for key in serve.get_arguments().filter_map(|flag| flag.get_long()) {
            if ["config", "help"].contains(&key) {
                continue;
            }
            let value = example(key).expect(key).value;
            let text = format!("{key} = {value}\n");
            toml::from_str::<crate::config::Settings>(&text).expect(&text);
            let flag = flag_example(key).expect("the same");
            clap::Parser::try_parse_from(["gridhaul-server", &flag])
                .map(|line: CommandLine| drop(line))
                .expect(&flag);
        }
    }
}
