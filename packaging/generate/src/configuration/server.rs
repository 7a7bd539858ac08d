//! The default configuration file of the server: every option of `serve` with its help, in the order of the help.
//!
//! A key with a value that the package sets is in force. Every other key is a comment: with its default, or with an example
//! if the help describes the default in words.

use clap::{Arg, CommandFactory as _};
use gridhaul_server::config::{CommandLine, Settings};

use super::help;

/// The beginning of the file.
const HEAD: &str = "\
# The configuration of the GridFTP server gridhaul-server. The command
#
#   gridhaul-server check --config /etc/gridhaul/gridhaul.toml
#
# examines this file and what it names. `systemctl reload gridhaul` applies most changes, and the
# log names those that need a restart.
#
# As installed, the server admits only users with certificates whom the grid-mapfile maps to local
# accounts, with the files and rights of these accounts. It needs
#
#   /etc/grid-security/hostcert.pem    the certificate of this host
#   /etc/grid-security/hostkey.pem     its key, which belongs to root and has mode 0600
#   /etc/grid-security/certificates/   the trusted authorities
#   /etc/grid-security/grid-mapfile    the accounts of users
#
# A line that begins with # and a key shows the default of this key, or an example where the text
# above the line describes the default in words. [[authorize]] and [[limit]] tables belong to the
# end of this file.
";

/// The end of the file.
const TAIL: &str = "
# Rules for identities, and limits of groups of users. Without rules the grid-mapfile decides. For
# example:
#
# [[authorize]]
# vo = \"atlas\"
# account = \"atlas\"
# root = \"/srv/atlas\"
# read-only = true
#
# [[limit]]
# name = \"atlas\"
# vo = \"atlas\"
# max-transfers = 100
";

/// The keys that the package sets.
const SET: &[(&str, &str)] = &[
    ("root", "\"/\""),
    ("listen", "\"2811\""),
    ("user", "\"gridhaul\""),
    ("gsi", "true"),
    ("port-range", "\"50000-51000\""),
    ("transfer-log", "\"/var/log/gridhaul/transfers.log\""),
];

/// Values for keys whose default is not a value but described in words, or is the absence of one.
const EXAMPLES: &[(&str, &str)] = &[
    ("stripes", "1"),
    ("banner", "\"Data of the example institute\""),
    ("passwords", "\"/etc/gridhaul/users\""),
    ("tls", "true"),
    ("cert", "\"/etc/grid-security/hostcert.pem\""),
    ("key", "\"/etc/grid-security/hostkey.pem\""),
    ("key-passphrase", "\"/etc/gridhaul/key-passphrase\""),
    ("trust", "\"/etc/grid-security/certificates\""),
    ("gridmap", "\"/etc/grid-security/grid-mapfile\""),
    ("ban-list", "[\"/etc/grid-security/ban_users.db\"]"),
    ("gridmapdir", "\"/etc/grid-security/gridmapdir\""),
    ("authz-callout", "\"/usr/libexec/gridhaul/callouts/lcmaps\""),
    ("vomsdir", "\"/etc/grid-security/vomsdir\""),
    ("tls-versions", "\"1.2-1.3\""),
    ("pam-service", "\"gridftp\""),
    ("umask", "\"0022\""),
    ("data-address", "\"192.0.2.10\""),
    ("advertise-address", "\"192.0.2.10\""),
    ("data-hosts", "[\"198.51.100.0/24\", \"2001:db8:7::/48\"]"),
    (
        "allowed-drivers",
        "[\"auto\", \"tcp\", \"splice\", \"rdma\"]",
    ),
    ("anonymous-drivers", "[\"auto\", \"tcp\", \"splice\"]"),
    ("client-options", "[\"rdma:message<=4M;rate;qps<=8\"]"),
    ("nodes", "[\"dtn1.example.org\", \"dtn2.example.org:7512\"]"),
    ("nodes-resolver", "[\"192.0.2.53\"]"),
    ("control-servers", "[\"ctl.example.org\"]"),
    ("node-authority", "\"/etc/gridhaul/node-authority\""),
    ("node-identity", "\"/etc/gridhaul/node-identity.pem\""),
    ("penalty-exempt", "[\"192.0.2.0/28\"]"),
    ("buffer-memory", "\"4GiB\""),
    ("rdma-memory", "\"4GiB\""),
    ("sync-files", "\"none\""),
    ("atomic-uploads", "[\"/srv/incoming\"]"),
    ("checksum-threads", "8"),
    ("checksum-key", "\"/etc/gridhaul/checksum.key\""),
    ("log-file", "\"/var/log/gridhaul/gridhaul.log\""),
    ("audit-log", "\"/var/log/gridhaul/audit.log\""),
    ("metrics-listen", "\"127.0.0.1:9281\""),
    ("admin-listen", "\"127.0.0.1:9282\""),
    ("admin-socket", "\"/run/gridhaul/admin.sock\""),
    ("admin-token", "\"/etc/gridhaul/admin-token\""),
    ("admin-cert", "\"/etc/grid-security/hostcert.pem\""),
    ("admin-key", "\"/etc/grid-security/hostkey.pem\""),
    ("admin-clients", "\"/etc/gridhaul/administrators.pem\""),
    ("admin-subjects", "[\"/DC=org/DC=example/CN=Operator\"]"),
    ("admin-names", "[\"dtn.example.org\"]"),
];

/// The text of the file.
///
/// # Panics
///
/// When an option has neither a default that is a value nor an example: add one to [`EXAMPLES`].
pub(super) fn text() -> String {
    let command = CommandLine::command();
    let serve = command.find_subcommand("serve").expect("a command");
    let mut text = HEAD.to_owned();
    let mut section = None;
    for argument in serve.get_arguments() {
        let Some(key) = argument.get_long().filter(|key| is_key(key)) else {
            continue;
        };
        let heading = argument.get_help_heading();
        if heading != section {
            section = heading;
            text.push_str(&format!("\n## {}\n", heading.unwrap_or_default()));
        }
        text.push('\n');
        text.push_str(&help(argument));
        let set = SET.iter().find(|(set, _)| *set == key);
        match set {
            Some((_, value)) => text.push_str(&format!("{key} = {value}\n")),
            None => text.push_str(&format!("#{key} = {}\n", value(argument, key))),
        }
    }
    text.push_str(TAIL);
    text
}

/// `config` and `help` are options only.
fn is_key(name: &str) -> bool {
    !["config", "help"].contains(&name)
}

/// The default as in the file, or an example.
fn value(argument: &Arg, key: &str) -> String {
    if let Some((_, example)) = EXAMPLES.iter().find(|(name, _)| *name == key) {
        return (*example).to_owned();
    }
    let is_switch = argument
        .get_value_names()
        .is_some_and(|names| names.iter().any(|name| name == "BOOL"));
    let help = argument.get_help().map(ToString::to_string);
    let default = help
        .as_deref()
        .and_then(|help| help.rsplit_once("Default: "));
    let default = match default {
        Some((_, default)) => default.trim_matches(['.', '`']),
        None if is_switch => "false",
        None => "",
    };
    let items: Vec<String> = default
        .split(',')
        .map(|item| format!("\"{}\"", item.trim()))
        .collect();
    let text = match argument.get_value_delimiter() {
        Some(_) => format!("[{}]", items.join(", ")),
        None => format!("\"{default}\""),
    };
    let forms = [default.to_owned(), text];
    let usable = forms.into_iter().find(|form| is_value(key, form));
    usable
        .filter(|_| !default.is_empty() && !default.contains(' '))
        .unwrap_or_else(|| panic!("--{key}: {default:?} is no value: add an example"))
}

fn is_value(key: &str, form: &str) -> bool {
    toml::from_str::<Settings>(&format!("{key} = {form}\n")).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::configuration::{WIDTH, uncommented};

    #[test]
    fn the_file_has_every_key_and_no_other() {
        let text = uncommented(&text());
        let table: toml::Table = toml::from_str(&text).expect("TOML");
        let written: BTreeSet<&str> = table.keys().map(String::as_str).collect();
        let keys: Vec<String> = Settings::ALL
            .iter()
            .map(|(name, _)| name.replace('_', "-"))
            .collect();
        let tables = ["authorize", "limit"];
        let keys: BTreeSet<&str> = keys
            .iter()
            .map(String::as_str)
            .filter(|key| !tables.contains(key))
            .collect();
        assert_eq!(written, keys);
    }

    #[test]
    fn the_server_reads_the_file_as_it_is_and_with_all_comments_removed() {
        let installed: Settings = toml::from_str(&text()).expect("valid");
        assert_eq!(installed.gsi, Some(true));
        assert_eq!(installed.anonymous, None);
        assert_eq!(installed.passwords, None);
        toml::from_str::<Settings>(&uncommented(&text())).expect("valid");
        let tables = TAIL
            .lines()
            .skip(3)
            .map(|line| line.trim_start_matches('#'));
        let tables: Vec<&str> = tables.collect();
        toml::from_str::<Settings>(&tables.join("\n")).expect("valid");
    }

    #[test]
    fn a_comment_shows_the_default_where_it_is_a_value() {
        let text = text();
        for line in [
            "#idle-timeout = \"10m\"",
            "#max-transfers = 500",
            "#anonymous = false",
            "#stall-bytes = \"64K\"",
            "#anonymous-names = [\"anonymous\", \"ftp\"]",
            "#delegation-keys = \"rsa\"",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
