//! `gridhaul guc`, or this program under the name `globus-url-copy`: its options, as those of `gridhaul copy`.
//!
//! The options and what they cause are those of globus-url-copy 10.12. Those that this program does not have are refused, because a
//! script relies on what they cause.

mod data_credential;
mod ends;
mod error;
mod help;
mod list;
mod options;
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
use super::Ending;
use super::arguments::{Arguments, Command, CopyArguments};
use super::copy::{self, Errand};
use super::interrupt;
use super::output::shown_lines;
use super::plan::Plan;
use super::report::Errors;
use super::telling::Telling;
use crate::location::{Location, Server};

/// What is printed in place of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Help,
    Version,
}

/// What a command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    shown: Option<Shown>,
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
    wants_stripes: bool,
    wants_dialogue: bool,
    is_unprotected: bool,
    are_paths_relative: bool,
    is_quiet: bool,
    is_verbose: bool,
}

pub(super) async fn run(words: &[OsString]) -> Ending {
    let request = Request::parse(words);
    if let Ok(Request {
        shown: Some(shown), ..
    }) = &request
    {
        help::print(*shown);
        return Ending::Complete;
    }
    let (request, errands, arguments) = match request.and_then(prepare) {
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
    if request.wants_dialogue {
        arguments.login.telling = Telling::as_globus();
    }
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
    let (ending, failed) = copy::errands(arguments.clone(), Errors::Globus, errands).await;
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
                    // As globus-url-copy, which ignores what follows.
                    if request.shown.is_some() {
                        return Ok(request);
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

    fn add(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|one| (*one).to_owned()));
    }

    /// The same for `gridhaul copy`.
    fn arguments(&self) -> Result<CopyArguments, GucError> {
        let mut words = vec!["gridhaul".to_owned(), "copy".to_owned()];
        words.extend(self.options.iter().cloned());
        // Standard input and output are one stream in any case.
        if self.wants_stripes && !self.urls.iter().any(|url| url == "-") {
            words.extend(["--mode", "extended"].map(ToOwned::to_owned));
        }
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
    use super::super::arguments::{ModeArgument, Parallel, StripeArgument};
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
    fn help_and_version_need_nothing_else() {
        for (line, shown) in [
            ("-help", Shown::Help),
            ("-usage -nosuch", Shown::Help),
            ("-vb --version", Shown::Version),
            ("-versions a b c", Shown::Version),
        ] {
            assert_eq!(request(line).expect("valid").shown, Some(shown), "{line}");
        }
    }

    #[test]
    fn stripes_are_those_of_mode_e() {
        for (line, mode) in [
            ("-stripe ftp://h/a ftp://i/b", ModeArgument::Extended),
            ("ftp://h/a ftp://i/b", ModeArgument::Auto),
            ("-stripe - ftp://h/a", ModeArgument::Auto),
        ] {
            let arguments = request(line).and_then(|request| request.arguments());
            let data = arguments.expect("valid").data;
            assert_eq!(data.mode, mode, "{line}");
            assert_eq!(data.stripe, StripeArgument::Auto);
        }
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
