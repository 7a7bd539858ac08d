//! `gridhaul guc`, or this program under the name `globus-url-copy`: its options, as those of `gridhaul copy`.
//!
//! The options and what they cause are those of globus-url-copy 10.12. Those that this program does not have are refused, because a
//! script relies on what they cause.

mod data_credential;
mod ends;
mod error;
mod list;
mod site;
mod urls;
mod values;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser as _;
use gridhaul_protocol::command::{AlgorithmName, Password};
use gridhaul_storage::ChecksumAlgorithm;

use self::ends::OneEnd;
use self::error::GucError;
use self::site::AfterLogin;
use self::urls::{relative, without_password};
use self::values::{Values, next_text};
use super::Ending;
use super::arguments::{Arguments, Command, CopyArguments};
use super::copy::{self, Errand};
use super::interrupt;
use super::output::shown_lines;
use super::plan::Plan;
use super::report::Errors;
use crate::location::{Location, Server};

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
    /// The file of `-do`.
    plan: Option<PathBuf>,
    /// Of sources and destinations.
    ends: [OneEnd; 2],
    passwords: Vec<(Server, Password)>,
    after_login: Vec<AfterLogin>,
    /// A file, or `auto`.
    data_credential: Option<PathBuf>,
    wants_udt: bool,
    is_unprotected: bool,
    are_paths_relative: bool,
    is_quiet: bool,
    is_verbose: bool,
}

pub(super) async fn run(words: &[OsString]) -> Ending {
    let prepared = Request::parse(words).and_then(prepare);
    let (request, errands, arguments) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            // As globus-url-copy.
            eprintln!("error: {}", shown_lines(&error.to_string()));
            return Ending::Failed;
        }
    };
    match copied(&request, errands, &arguments).await {
        // globus-url-copy has no other status for wrong command lines.
        Ending::Usage => Ending::Failed,
        ending => ending,
    }
}

/// The copies, and the options of `gridhaul copy` for them.
fn prepare(mut request: Request) -> Result<(Request, Vec<Errand>, CopyArguments), GucError> {
    let mut errands = request.errands()?;
    let mut arguments = request.arguments()?;
    let ends = request.end_options();
    if request.has_ends() {
        for errand in &mut errands {
            errand.tell_ends();
        }
    }
    arguments.login.ends = ends;
    arguments.login.data_credential = request.data_credential()?;
    arguments.login.passwords = std::mem::take(&mut request.passwords);
    Ok((request, errands, arguments))
}

async fn copied(request: &Request, errands: Vec<Errand>, arguments: &CopyArguments) -> Ending {
    if let Some(listed) = &request.listed {
        return tokio::select! {
            ending = list::run(listed, arguments) => ending,
            () = interrupt::arrived() => Ending::Interrupted,
        };
    }
    let locations = match errands.as_slice() {
        // Those of a list are files.
        [only] if request.list_file.is_none() => only.locations(),
        _ => Vec::new(),
    };
    if let Some(ending) = copy::standard_stream(arguments, Errors::Globus, &locations).await {
        return ending;
    }
    let (ending, failed) = copy::errands(arguments, Errors::Globus, errands).await;
    let dumped = match &request.dump_file {
        // The next copy of the same command reads the dump in place of the list, which has what was not tried.
        Some(_) if ending == Ending::Interrupted => Ok(()),
        Some(path) => dump(path, &failed).map_err(|error| (path, error)),
        None => Ok(()),
    };
    let planned = match (&request.plan, &arguments.plan) {
        (Some(path), Some(plan)) => plan.finish().map_err(|error| (path, error)),
        _ => Ok(()),
    };
    match dumped.and(planned) {
        Ok(()) => ending,
        Err((path, error)) => {
            eprintln!("error: {}: {error}", path.display());
            Ending::Failed
        }
    }
}

impl Request {
    fn parse(words: &[OsString]) -> Result<Self, GucError> {
        let mut request = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let word = urls::text(word);
            match word.strip_prefix('-').filter(|name| !name.is_empty()) {
                None => request.urls.push(word),
                Some(name) => {
                    let name = name.strip_prefix('-').unwrap_or(name).to_owned();
                    let mut value = || {
                        let value = words.next().cloned();
                        value.ok_or_else(|| GucError::Value(word.clone()))
                    };
                    if !request.flag(&name) && !request.option(&name, &mut value)? {
                        return Err(GucError::Option(word));
                    }
                }
            }
        }
        for url in request.urls.iter_mut().chain(&mut request.listed) {
            if request.are_paths_relative {
                *url = relative(url);
            }
            *url = without_password(std::mem::take(url), &mut request.passwords)?;
        }
        // Observed from globus-url-copy 10.12: without data channel authentication it does not request UDT, so -udt changes nothing.
        let has_gsi = request.urls.iter().any(|url| url.starts_with("gsiftp:"));
        let may_have_gsi = has_gsi || request.list_file.is_some();
        if request.wants_udt && may_have_gsi && !request.is_unprotected {
            request.add(&["--stack", "udt"]);
        }
        Ok(request)
    }

    /// Reads an option without a value; whether it is one.
    fn flag(&mut self, name: &str) -> bool {
        match name {
            // Without effect there, too, or always on here.
            "a"
            | "ascii"
            | "b"
            | "binary"
            | "c"
            | "continue-on-error"
            | "no-g2"
            | "nogridftp2"
            | "gridftp2"
            | "cache-aa"
            | "cache-authz-assert"
            | "cache-saa"
            | "cache-src-authz-assert"
            | "cache-daa"
            | "cache-dst-authz-assert"
            | "pp"
            | "pipeline"
            | "stripe"
            | "striped"
            | "ipv6"
            | "dp"
            | "delayed-pasv"
            | "dbg"
            | "debugftp" => {}
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
            "notpt" | "no-third-party-transfers" => self.add(&["--relay"]),
            "sync" => self.syncs = true,
            "verify-checksum" => self.verifies = true,
            _ => return false,
        }
        true
    }

    /// Reads an option with a value; whether it is one.
    fn option(&mut self, name: &str, value: &mut Values<'_>) -> Result<bool, GucError> {
        match name {
            "f" | "filename" => self.list_file = Some(value()?.into()),
            "df" | "dumpfile" => self.dump_file = Some(value()?.into()),
            "list" => self.listed = Some(next_text(value)?),
            "p" | "parallel" => self.add(&["--mode", "extended", "--parallel", &next_text(value)?]),
            "cc" | "concurrency" => self.add(&["--concurrency", &next_text(value)?]),
            // The kernel and the drivers choose buffers and blocks.
            "bs" | "block-size" | "tcp-bs" | "tcp-buffer-size" | "sbs" | "striped-block-size"
            | "rst-interval" | "restart-interval" | "rst-timeout" | "restart-timeout" => {
                value()?;
            }
            "rst-retries" | "restart-retries" => {
                self.restarts = true;
                self.retries = Some(next_text(value)?);
            }
            "st" | "stall-timeout" => self.add(&["--stall-timeout", &next_text(value)?]),
            "t" => self.add(&["--timeout", &next_text(value)?]),
            "do" | "dump-only" => self.plan = Some(value()?.into()),
            "off" | "partial-offset" => self.add(&["--offset", &next_text(value)?]),
            "len" | "partial-length" => self.add(&["--length", &next_text(value)?]),
            "dcstack" | "data-channel-stack" => self.add(&["--stack", &next_text(value)?]),
            "sync-level" => {
                self.syncs = true;
                self.sync_level = Some(next_text(value)?);
            }
            "checksum-alg" => self.checksum = Some(next_text(value)?),
            "data-cred" => self.data_credential = Some(value()?.into()),
            _ => {
                return Ok(self.end_option(name, value)? || self.site_option(name, value)?);
            }
        }
        Ok(true)
    }

    fn add(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|one| (*one).to_owned()));
    }

    /// The same for `gridhaul copy`.
    fn arguments(&self) -> Result<CopyArguments, GucError> {
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
        let algorithm = self.checksum.as_deref().unwrap_or("MD5");
        let is_known = algorithm.parse::<ChecksumAlgorithm>().is_ok();
        if self.verifies && is_known {
            words.extend(["--checksum", algorithm].map(ToOwned::to_owned));
        }
        if self.plan.is_some() {
            words.push("--dry-run".to_owned());
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
        if self.verifies && !is_known {
            let name = AlgorithmName::new(algorithm);
            let name = name.ok_or_else(|| GucError::Algorithm(algorithm.to_owned()))?;
            arguments.checksum_of_servers = Some(name);
        }
        if let Some(path) = &self.plan {
            let plan = Plan::create(path).map_err(|error| GucError::Plan(path.clone(), error))?;
            arguments.plan = Some(Arc::new(plan));
        }
        if let Some(stack) = self.stack_here() {
            arguments.data.channels.stack = Some(stack.clone());
        }
        Ok(arguments)
    }

    fn errands(&mut self) -> Result<Vec<Errand>, GucError> {
        if self.listed.is_some() {
            return Ok(Vec::new());
        }
        // What an earlier run has left, with the locations that it has used.
        let left = self
            .dump_file
            .as_ref()
            .filter(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0));
        if let Some(path) = left {
            return Ok(copy::of_list(path, &Ok)?);
        }
        if let Some(path) = &self.list_file {
            let passwords = RefCell::new(std::mem::take(&mut self.passwords));
            let rewrite = |location: String| {
                let location = match self.are_paths_relative {
                    true => relative(&location),
                    false => location,
                };
                without_password(location, &mut passwords.borrow_mut())
            };
            let errands = copy::of_list(path, &rewrite)?;
            self.passwords = passwords.into_inner();
            return Ok(errands);
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
    use super::super::arguments::Parallel;
    use super::*;

    fn request(line: &str) -> Result<Request, GucError> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Request::parse(&words)
    }

    #[test]
    fn options_become_those_of_copy() {
        let words = "-vb -fast -p 4 -cc 2 -r -rst-retries 3 -sync-level 1 -verify-checksum -dcpriv -tcp-bs 1000 file:/a ftp://h/b";
        let mut request = request(words).expect("valid");
        let arguments = request.arguments().expect("valid");
        assert_eq!(arguments.data.parallel, Parallel::Fixed(4));
        assert_eq!(arguments.concurrency, 2);
        assert!(arguments.recursive && !arguments.quiet);
        assert_eq!(arguments.retry, 3);
        assert!(arguments.sync.is_some() && arguments.checksum.is_some());
        assert_eq!(request.errands().expect("two URLs").len(), 1);
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let unknown = ["-nosuch a b", "-nlb a b", "-mn m -mp a=1 a b"];
        let wrong = ["-p", "a", "a b c", "-src-dcstack , a b", "-pipe"];
        for line in unknown.into_iter().chain(wrong) {
            let asked = request(line).and_then(|mut request| request.errands());
            asked.expect_err(line);
        }
        let error = request("-pipe cat a b").expect_err("no separator");
        assert!(error.to_string().starts_with("-pipe: "), "{error}");
    }
}
