//! Recognizes a configuration file of globus-gridftp-server.

/// Options that its files often have. Names are those of its long flags, with underscores (globus-gridftp-server 13.25).
const OPTIONS: &[&str] = &[
    "allow_anonymous",
    "allow_root",
    "anonymous_user",
    "auth_level",
    "banner",
    "blocksize",
    "chdir",
    "chdir_to",
    "chroot_path",
    "connections_max",
    "control_interface",
    "control_preauth_timeout",
    "daemon",
    "data_interface",
    "dc_whitelist",
    "detach",
    "disable_usage_stats",
    "fs_whitelist",
    "home_dir",
    "hostname",
    "inetd",
    "load_dsi_module",
    "log_level",
    "log_module",
    "log_single",
    "log_transfer",
    "log_unique",
    "perms",
    "pidfile",
    "port",
    "port_range",
    "process_user",
    "pw_file",
    "restrict_paths",
    "sharing_dn",
    "stripe_blocksize",
    "sync_writes",
    "threads",
    "use_home_dirs",
];

/// Whether a text is in the syntax of globus-gridftp-server: each line is an option or a variable (`$NAME`), white space and a
/// value, and at least one option or variable is known.
pub(crate) fn is_of_globus(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut is_known = false;
    for line in lines {
        let Some((name, value)) = line.split_once(char::is_whitespace) else {
            return false;
        };
        let variable = name.strip_prefix('$');
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let is_name = |name: &str| !name.is_empty() && name.chars().all(fits);
        // `port = 2811` is TOML.
        if !is_name(variable.unwrap_or(name)) || value.trim_start().starts_with('=') {
            return false;
        }
        is_known |= variable.is_some() || OPTIONS.contains(&name);
    }
    is_known
}

#[cfg(test)]
mod tests {
    use super::is_of_globus;

    #[test]
    fn options_with_values_are_recognized() {
        for text in [
            "port 2811\n",
            "# comment\n\n$GLOBUS_TCP_PORT_RANGE 50000,51000\nsome_new_option 1\n",
            "banner \"Welcome = all\"\n\tlog_single /var/log/gridftp.log\n",
        ] {
            assert!(is_of_globus(text), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not() {
        for text in [
            "",
            "# port 2811\n",
            "port = 2811\n",
            "port 2811\nanonymous = true\n",
            "port\n",
            "2026-11-24T00:00:00Z INFO session opened\n",
            "some words\n",
            "[limits]\n",
        ] {
            assert!(!is_of_globus(text), "{text}");
        }
    }
}
