//! Arguments of globus-url-copy as those of `gridhaul copy`.

use std::ffi::OsString;

use super::Inexpressible;

/// Options of globus-url-copy that choose what the kernel, the drivers or the servers choose for `gridhaul copy`, or that are always on.
const NEEDLESS: [&str; 12] = [
    "-a", "-ascii", "-c", "-dp", "-no-g2", "-pp", "-q", "-stripe", "-v", "-vb", "-b", "-binary",
];

/// The same with a value.
const NEEDLESS_VALUES: [&str; 4] = ["-bs", "-rst-interval", "-sbs", "-tcp-bs"];

const SINGLE: &str = "commands to single servers are in gridhaul guc";

/// What stands in the way of `-list` of a pattern.
pub(super) const PATTERNS: &str = "gridhaul ls takes no pattern";
/// What stands in the way of passwords in URLs.
pub(super) const PASSWORDS: &str = "passwords are in files, or typed";
/// What stands in the way of algorithms that only a server may know.
pub(super) const ALGORITHMS: &str = "it asks servers only for algorithms that it knows itself";

/// Options with a value that `gridhaul copy` has no option for, and why.
const NOT_THERE: [(&str, &str); 10] = [
    ("-aa", SINGLE),
    (
        "-data-cred",
        "credentials for data channels only are in gridhaul guc",
    ),
    ("-fsstack", SINGLE),
    ("-src-pipe", SINGLE),
    ("-mn", "it has no modules"),
    ("-df", "--resume has a journal"),
    ("-do", "--dry-run prints the copies"),
    ("-src-cred", "one user copies"),
    ("-src-dcstack", "a stack is for both ends"),
    ("-dst-dcstack", "a stack is for both ends"),
];

/// What the arguments ask for.
#[derive(Default)]
struct Request {
    options: Vec<OsString>,
    urls: Vec<OsString>,
    listed: Option<OsString>,
    retries: Option<OsString>,
    restarts: bool,
    sync: Option<OsString>,
    checksum: Option<OsString>,
    verifies: bool,
    is_recursive: bool,
    are_paths_relative: bool,
    is_unprotected: bool,
    wants_udt: bool,
}

/// The command of our client that does the same.
pub(super) fn translated(arguments: &[OsString]) -> Result<Vec<OsString>, Inexpressible> {
    let mut request = Request::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if !text.starts_with('-') {
            request.urls.push(word.clone());
            continue;
        }
        let mut value = || words.next().cloned().unwrap_or_default();
        if !request.flag(text) && !request.option(text, &mut value)? {
            return Err(inexpressible(text, "the translation does not know it"));
        }
    }
    request.line()
}

/// Why `gridhaul copy` cannot run a case whose name has an option that it does not have.
pub(super) fn absent(case: &str) -> Option<&'static str> {
    let mut words = case.split([' ', ',']);
    words.find_map(reason)
}

/// Why `gridhaul copy` has no option that does the same as this one of globus-url-copy.
fn reason(option: &str) -> Option<&'static str> {
    let found = NOT_THERE.iter().find(|(name, _)| *name == option);
    found.map(|(_, reason)| *reason)
}

fn inexpressible(option: &str, reason: &'static str) -> Inexpressible {
    Inexpressible {
        option: option.to_owned(),
        reason,
    }
}

impl Request {
    /// Reads an option without a value; whether it is one.
    fn flag(&mut self, option: &str) -> bool {
        match option {
            option if NEEDLESS.contains(&option) => {}
            "-fast" => self.add(&["--mode", "extended"]),
            "-r" => self.is_recursive = true,
            "-cd" => self.add(&["--create-dirs"]),
            "-ipv6" => self.add(&["--ipv6"]),
            "-notpt" => self.add(&["--relay"]),
            "-rst" => self.restarts = true,
            "-rp" => self.are_paths_relative = true,
            "-udt" => self.wants_udt = true,
            "-nodcau" => {
                self.is_unprotected = true;
                self.add(&["--dcau", "none"]);
            }
            "-dcsafe" | "-dcpriv" => self.add(&["--protect"]),
            "-sync" => self.sync = Some("2".into()),
            "-verify-checksum" => self.verifies = true,
            _ => return false,
        }
        true
    }

    /// Reads an option with a value; whether it is one.
    fn option(
        &mut self,
        option: &str,
        value: &mut dyn FnMut() -> OsString,
    ) -> Result<bool, Inexpressible> {
        if let Some(reason) = reason(option) {
            return Err(inexpressible(option, reason));
        }
        match option {
            option if NEEDLESS_VALUES.contains(&option) => drop(value()),
            "-p" => {
                self.add(&["--mode", "extended"]);
                self.add_value("--parallel", value());
            }
            "-cc" => self.add_value("--concurrency", value()),
            "-f" => self.add_value("--from-file", value()),
            "-list" => self.listed = Some(value()),
            "-off" => self.add_value("--offset", value()),
            "-len" => self.add_value("--length", value()),
            "-st" => self.add_value("--stall-timeout", value()),
            "-cred" => self.add_value("--proxy", value()),
            "-s" | "-ss" | "-ds" => self.add_value("--subject", value()),
            "-dcstack" => self.add_value("--stack", value()),
            "-rst-retries" => self.retries = Some(value()),
            "-sync-level" => self.sync = Some(value()),
            "-checksum-alg" => self.checksum = Some(value()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add(&mut self, options: &[&str]) {
        self.options.extend(options.iter().map(OsString::from));
    }

    fn add_value(&mut self, option: &str, value: OsString) {
        self.options.extend([option.into(), value]);
    }

    fn line(mut self) -> Result<Vec<OsString>, Inexpressible> {
        let is_secure = |url: &OsString| url.to_string_lossy().starts_with("gsiftp:");
        // Without data channel authentication globus-url-copy does not request UDT.
        if self.wants_udt && !self.is_unprotected && self.urls.iter().any(is_secure) {
            self.add(&["--stack", "udt"]);
        }
        if let Some(url) = &self.listed {
            let url = url.to_string_lossy();
            // An IPv6 address has brackets, too.
            let name = url.rsplit('/').next().unwrap_or_default();
            if name.contains(['*', '?', '[']) {
                return Err(inexpressible("-list", PATTERNS));
            }
            let command = if self.is_recursive { "tree" } else { "ls" };
            let mut line: Vec<OsString> = vec![command.into(), "--json".into()];
            // Other options say how files are copied.
            if self.options.iter().any(|option| option == "--ipv6") {
                line.push("--ipv6".into());
            }
            line.push(url.into_owned().into());
            return Ok(line);
        }
        // A destination is a directory only with a slash; failures are final without -rst.
        self.add(&["--quiet", "--no-target-directory"]);
        let retries = match (self.restarts, self.retries.take()) {
            (true, given) => given.unwrap_or_else(|| "5".into()),
            (false, _) => "0".into(),
        };
        self.add_value("--retry", retries);
        if self.is_recursive {
            self.add(&["--recursive"]);
        }
        if let Some(level) = self.sync.take() {
            let how = match level.to_str() {
                Some("0") => "exists",
                Some("1") => "size",
                Some("3") => "checksum",
                _ => "newer",
            };
            self.add(&[&format!("--sync={how}")]);
        }
        if self.verifies {
            let algorithm = self.checksum.take().unwrap_or_else(|| "MD5".into());
            if algorithm == "NOSUCHSUM" {
                return Err(inexpressible("-checksum-alg NOSUCHSUM", ALGORITHMS));
            }
            self.add_value("--checksum", algorithm);
        }
        let urls = std::mem::take(&mut self.urls);
        let urls = urls.into_iter().map(|url| self.place(url));
        let urls = urls.collect::<Result<Vec<_>, _>>()?;
        let mut line: Vec<OsString> = vec!["copy".into()];
        line.append(&mut self.options);
        line.extend(urls);
        Ok(line)
    }

    /// A URL as `gridhaul copy` takes it.
    fn place(&self, url: OsString) -> Result<OsString, Inexpressible> {
        let Some(text) = url.to_str() else {
            return Ok(url);
        };
        let Some((scheme, rest)) = text.split_once("://").filter(|it| it.0 != "file") else {
            return Ok(url);
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        if user.contains(':') {
            return Err(inexpressible("a password in a URL", PASSWORDS));
        }
        Ok(match self.are_paths_relative {
            true => format!("{scheme}://{authority}/~{path}").into(),
            false => url,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn options_become_those_of_copy() {
        let line = translated(&words("-p 4 -r -dcpriv -rp ftp://h/a file:///b")).unwrap();
        let expected = "copy --mode extended --parallel 4 --protect --quiet --no-target-directory --retry 0 --recursive \
                        ftp://h/~/a file:///b";
        assert_eq!(line, words(expected));
        let line = translated(&words("-list ftp://h/a/ -p 4")).unwrap();
        assert_eq!(line, words("ls --json ftp://h/a/"));
    }

    #[test]
    fn what_copy_does_not_have_is_an_error() {
        for line in ["-mn x ftp://h/a b", "-nosuch", "ftp://u:p@h/a b"] {
            assert!(translated(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn names_of_cases_have_the_options_that_copy_does_not_have() {
        let reason = absent("globus-url-copy/options -aa, an assertion is taken");
        assert_eq!(reason, Some(SINGLE));
        assert_eq!(absent("globus-url-copy/options -a, -aab"), None);
    }
}
