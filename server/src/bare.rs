//! `gridhaul-server` without arguments: serves the current directory to a person who tries a checkout, and explains itself
//! to others.

use std::fs;
use std::path::Path;

use crate::config::ServeArguments;
use crate::privileges;

/// A short usage, for standard error.
pub const USAGE: &str = "\
gridhaul-server: say what to serve, for example:

  gridhaul-server serve --root /srv/data --listen 2811 --anonymous
      a directory, read-only, to all users of all hosts
  gridhaul-server check --gsi --root / --listen 2811
      examines a server for users with certificates, and starts nothing
  gridhaul-server serve --config /etc/gridhaul/gridhaul.toml
      what a configuration file says

`gridhaul-server help` lists the commands, and `gridhaul-server serve -h` the options.
";

/// Whether there are no arguments, and the current directory must not be served: root, or a service without its arguments,
/// may have started the program in `/`.
pub fn is_refused(arguments: &ServeArguments) -> bool {
    let program = std::env::current_exe().unwrap_or_default();
    *arguments == ServeArguments::default()
        && (privileges::is_root() || !is_built_by_cargo(&program))
}

/// Whether a program is below a target directory of cargo, which cargo marks with a file.
fn is_built_by_cargo(program: &Path) -> bool {
    const MARK: &str = "CACHEDIR.TAG";

    program.ancestors().skip(1).any(|directory| {
        let mark = fs::read_to_string(directory.join(MARK));
        mark.is_ok_and(|mark| mark.contains("created by cargo"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_checkout_is_told_from_an_installed_one() {
        let test = std::env::current_exe().expect("this test");
        assert!(is_built_by_cargo(&test));
        assert!(!is_built_by_cargo(Path::new("/usr/bin/gridhaul-server")));
        let with_flags = ServeArguments {
            config: Some("/etc/gridhaul/gridhaul.toml".into()),
            ..ServeArguments::default()
        };
        assert!(!is_refused(&with_flags));
        assert_eq!(
            is_refused(&ServeArguments::default()),
            privileges::is_root()
        );
    }
}
