//! `gridhaul guc`, or this program under the name `globus-url-copy`: its options, as those of `gridhaul copy`.
//!
//! The options and what they cause are those of globus-url-copy 10.12. Those that this program does not have are refused, because a
//! script relies on what they cause.

mod list;
mod site;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Parser as _;
use gridhaul_protocol::command::SiteCommand;

use self::site::{AfterLogin, SiteError};
use super::Ending;
use super::arguments::{Arguments, Command, CopyArguments};
use super::copy::{self, Errand, ListError};
use super::report::Errors;
use crate::location::{Location, LocationError};

/// A wrong command line.
#[derive(Debug, thiserror::Error)]
enum GucError {
    #[error("{0} needs a value")]
    Value(String),
    #[error("this program does not have the option {0} of globus-url-copy")]
    Option(String),
    #[error(
        "this program does not have UDT: leave -udt out, or use -dcstack rdma between servers that have it"
    )]
    Udt,
    #[error("give a source and a destination, or -f FILE")]
    Urls,
    #[error("-s, -ss and -ds must name the same subject")]
    Subjects,
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Location(#[from] LocationError),
}

/// What a command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// Options of `gridhaul copy`.
    options: Vec<String>,
    urls: Vec<String>,
    list_file: Option<PathBuf>,
    /// Where the files that were not copied are written, and read from by the next run.
    dump_file: Option<PathBuf>,
    /// The directory that is listed.
    listed: Option<String>,
    retries: Option<String>,
    restarts: bool,
    sync_level: Option<String>,
    syncs: bool,
    checksum: Option<String>,
    verifies: bool,
    subject: Option<String>,
    after_login: Vec<AfterLogin>,
    wants_udt: bool,
    is_unprotected: bool,
    are_paths_relative: bool,
    is_quiet: bool,
    is_verbose: bool,
}

pub(super) async fn run(words: &[OsString]) -> Ending {
    let asked = Request::parse(words).and_then(|request| {
        let (errands, commands) = (request.errands()?, request.commands()?);
        Ok((request, errands, commands))
    });
    let (request, errands, commands) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("error: {error}");
            // As globus-url-copy.
            return Ending::Failed;
        }
    };
    let mut arguments = match request.arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return Ending::Failed;
        }
    };
    arguments.login.site = commands;
    if let Some(listed) = &request.listed {
        return list::run(listed, &arguments).await;
    }
    let locations = request.urls.iter().flat_map(|url| Location::parse(url));
    let locations: Vec<_> = locations.collect();
    if let Some(ending) = copy::standard_stream(&arguments, Errors::Globus, &locations).await {
        return ending;
    }
    let (ending, failed) = copy::errands(&arguments, Errors::Globus, errands).await;
    if let Some(path) = &request.dump_file
        && let Err(error) = dump(path, &failed)
    {
        eprintln!("gridhaul guc: {}: {error}", path.display());
        return Ending::Failed;
    }
    ending
}

impl Request {
    fn parse(words: &[OsString]) -> Result<Self, GucError> {
        let mut request = Self::default();
        let mut words = words.iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            match word.strip_prefix('-').filter(|name| !name.is_empty()) {
                None => request.urls.push(word),
                Some(name) => {
                    let name = name.strip_prefix('-').unwrap_or(name).to_owned();
                    let mut value = || words.next().ok_or_else(|| GucError::Value(word.clone()));
                    if !request.flag(&name) && !request.option(&name, &mut value)? {
                        return Err(GucError::Option(word));
                    }
                }
            }
        }
        if request.are_paths_relative {
            for url in request.urls.iter_mut().chain(&mut request.listed) {
                *url = relative(url);
            }
        }
        // Observed from globus-url-copy 10.12: without data channel authentication it does not request UDT, so -udt changes nothing.
        let has_gsi = request.urls.iter().any(|url| url.starts_with("gsiftp:"));
        let may_have_gsi = has_gsi || request.list_file.is_some();
        match request.wants_udt && may_have_gsi && !request.is_unprotected {
            true => Err(GucError::Udt),
            false => Ok(request),
        }
    }

    /// Reads an option without a value; whether it is one.
    fn flag(&mut self, name: &str) -> bool {
        match name {
            // Without effect there, too, or always on here.
            "a" | "ascii" | "b" | "binary" | "c" | "continue-on-error" | "no-g2" | "nogridftp2"
            | "gridftp2" | "pp" | "pipeline" | "stripe" | "striped" | "ipv6" | "dp"
            | "delayed-pasv" | "dbg" | "debugftp" => {}
            "udt" => self.wants_udt = true,
            "rp" | "relative-paths" => self.are_paths_relative = true,
            "cd" | "create-dest" => self.add(&["--create-dirs"]),
            "fast" => self.add(&["--mode", "extended"]),
            "q" | "quiet" => self.is_quiet = true,
            "v" | "verbose" | "vb" | "verbose-perf" => self.is_verbose = true,
            "r" | "recurse" => self.add(&["--recursive"]),
            "rst" | "restart" => self.restarts = true,
            "nodcau" | "no-data-channel-authentication" => {
                self.is_unprotected = true;
                self.add(&["--dcau", "none"]);
            }
            "dcsafe" | "data-channel-safe" | "dcpriv" | "data-channel-private" => {
                self.add(&["--protect"]);
            }
            "sync" => self.syncs = true,
            "verify-checksum" => self.verifies = true,
            _ => return false,
        }
        true
    }

    /// Reads an option with a value; whether it is one.
    fn option(
        &mut self,
        name: &str,
        value: &mut dyn FnMut() -> Result<String, GucError>,
    ) -> Result<bool, GucError> {
        match name {
            "f" | "filename" => self.list_file = Some(value()?.into()),
            "df" | "dumpfile" => self.dump_file = Some(value()?.into()),
            "list" => self.listed = Some(value()?),
            "p" | "parallel" => self.add(&["--mode", "extended", "--parallel", &value()?]),
            "cc" | "concurrency" => self.add(&["--concurrency", &value()?]),
            // The kernel and the drivers choose buffers and blocks.
            "bs" | "block-size" | "tcp-bs" | "tcp-buffer-size" | "sbs" | "striped-block-size"
            | "rst-interval" | "restart-interval" | "rst-timeout" | "restart-timeout" => {
                value()?;
            }
            "rst-retries" | "restart-retries" => {
                self.restarts = true;
                self.retries = Some(value()?);
            }
            "st" | "stall-timeout" => self.add(&["--stall-timeout", &value()?]),
            "t" => self.add(&["--timeout", &value()?]),
            "s" | "subject" | "ss" | "source-subject" | "ds" | "dest-subject" => {
                let subject = value()?;
                if self.subject.as_ref().is_some_and(|known| *known != subject) {
                    return Err(GucError::Subjects);
                }
                self.subject = Some(subject);
            }
            "off" | "partial-offset" => self.add(&["--offset", &value()?]),
            "len" | "partial-length" => self.add(&["--length", &value()?]),
            "cred" => self.add(&["--proxy", &value()?]),
            "dcstack" | "data-channel-stack" => self.add(&["--stack", &value()?]),
            "sync-level" => {
                self.syncs = true;
                self.sync_level = Some(value()?);
            }
            "checksum-alg" => self.checksum = Some(value()?),
            _ => {
                let mut missing = None;
                let read = site::read(name, &mut || {
                    value().map_err(|error| missing = Some(error)).ok()
                });
                match (read, missing) {
                    (_, Some(error)) => return Err(error),
                    (Some(after_login), None) => self.after_login.push(after_login?),
                    (None, None) => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    fn add(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|one| (*one).to_owned()));
    }

    /// The same for `gridhaul copy`.
    fn arguments(&self) -> Result<CopyArguments, clap::Error> {
        let mut words = vec!["gridhaul".to_owned(), "copy".to_owned()];
        words.extend(self.options.iter().cloned());
        // Its copies are one after the other, without restarts, and it is silent.
        if !self.options.iter().any(|one| one == "--concurrency") {
            words.extend(["--concurrency", "1"].map(ToOwned::to_owned));
        }
        if !self.options.iter().any(|one| one == "--stall-timeout") {
            words.extend(["--stall-timeout", "600"].map(ToOwned::to_owned));
        }
        let retries = match self.restarts {
            true => self.retries.as_deref().unwrap_or("5"),
            false => "0",
        };
        words.extend(["--retry", retries].map(ToOwned::to_owned));
        if self.syncs {
            let how = match self.sync_level.as_deref() {
                Some("0") => "exists",
                Some("1") => "size",
                None | Some("2") => "newer",
                Some("3") => "checksum",
                Some(other) => other,
            };
            words.push(format!("--sync={how}"));
        }
        if self.verifies {
            let algorithm = self.checksum.as_deref().unwrap_or("MD5");
            words.extend(["--checksum", algorithm].map(ToOwned::to_owned));
        }
        if let Some(subject) = &self.subject {
            words.extend(["--subject", subject].map(ToOwned::to_owned));
        }
        if self.is_quiet || !self.is_verbose {
            words.push("--quiet".to_owned());
        }
        // A directory as a destination ends with a slash. The URLs are in the errands.
        words.push("--no-target-directory".to_owned());
        words.extend(["--", ".", "."].map(ToOwned::to_owned));
        let Command::Copy(mut arguments) = Arguments::try_parse_from(words)?.command else {
            unreachable!("the words are those of copy");
        };
        arguments.locations.clone_from(&self.urls);
        Ok(arguments)
    }

    /// The commands that servers get after the login.
    fn commands(&self) -> Result<Vec<SiteCommand>, SiteError> {
        let is_server = |url: &str| matches!(Location::parse(url), Ok(Location::Remote(_)));
        let servers = match (&self.listed, self.urls.as_slice()) {
            (Some(_), _) => [true, false],
            (None, [source, destination]) => [is_server(source), is_server(destination)],
            // A list may have copies of all kinds.
            _ => [true, true],
        };
        site::commands(&self.after_login, servers)
    }

    fn errands(&self) -> Result<Vec<Errand>, GucError> {
        if self.listed.is_some() {
            return Ok(Vec::new());
        }
        // What an earlier run has left, with the locations that it has used.
        let left = self
            .dump_file
            .as_ref()
            .filter(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0));
        if let Some(path) = left {
            return Ok(copy::of_list(path, &|location| location)?);
        }
        if let Some(path) = &self.list_file {
            let rewrite = |location: String| match self.are_paths_relative {
                true => relative(&location),
                false => location,
            };
            return Ok(copy::of_list(path, &rewrite)?);
        }
        match self.urls.as_slice() {
            [source, destination] => {
                let pair = [source, destination].map(|url| Location::parse(url));
                let [source, destination] = pair;
                let errand = Errand::of(vec![source?, destination?]);
                Ok(errand.into_iter().collect())
            }
            _ => Err(GucError::Urls),
        }
    }
}

/// A URL whose path begins at the home directory of the user, unless it begins with an encoded slash.
fn relative(url: &str) -> String {
    let place = url.find("://").map(|scheme| scheme + 3);
    let slash = place.and_then(|place| url[place..].find('/').map(|slash| place + slash));
    match slash
        .filter(|_| !url.starts_with("file:"))
        .map(|slash| url.split_at(slash))
    {
        Some((server, path)) if path.to_ascii_uppercase().starts_with("/%2F") => {
            format!("{server}/{}", &path[4..])
        }
        Some((server, path)) if !path.starts_with("/~") => format!("{server}/~{path}"),
        _ => url.to_owned(),
    }
}

/// Writes the pairs that were not copied, for `-f` or another run with `-df`.
fn dump(path: &Path, failed: &[(String, String)]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    for (source, destination) in failed {
        writeln!(file, "\"{source}\" \"{destination}\"")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<Request, GucError> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Request::parse(&words)
    }

    #[test]
    fn options_become_those_of_copy() {
        let words = "-vb -fast -p 4 -cc 2 -r -rst-retries 3 -sync-level 1 -verify-checksum -dcpriv -tcp-bs 1000 file:/a ftp://h/b";
        let request = request(words).expect("valid");
        let arguments = request.arguments().expect("valid");
        assert_eq!((arguments.data.parallel, arguments.concurrency), (4, 2));
        assert!(arguments.recursive && !arguments.quiet);
        assert_eq!(arguments.retry, 3);
        assert!(arguments.sync.is_some() && arguments.checksum.is_some());
        assert_eq!(request.errands().expect("two URLs").len(), 1);
    }

    #[test]
    fn relative_paths_begin_at_the_home_directory() {
        for (url, expected) in [
            ("ftp://h/a/b", "ftp://h/~/a/b"),
            ("ftp://h/%2Fa/b", "ftp://h/a/b"),
            ("ftp://h/~/a", "ftp://h/~/a"),
            ("file:///a", "file:///a"),
            ("a", "a"),
        ] {
            assert_eq!(relative(url), expected);
        }
        let request = request("-rp -udt ftp://h/a file:///b").expect("valid");
        assert_eq!(request.urls, ["ftp://h/~/a", "file:///b"]);
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        for line in [
            "-udt gsiftp://h/a b",
            "-nosuch a b",
            "-p",
            "a",
            "a b c",
            "-ss x -ds y a b",
        ] {
            let asked = request(line).and_then(|request| request.errands());
            asked.expect_err(line);
        }
    }
}
