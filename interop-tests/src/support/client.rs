//! Runs one client program: arguments in, exit status and output out, within a time limit.
//!
//! Every program runs in the same small environment (no proxies, no configuration of the account,
//! the C locale in UTF-8, UTC), so that a case gives the same result on every machine.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use super::copier::{Copier, Inexpressible, Line, Words};
use super::process_group::ProcessGroup;

/// The number of bytes of a program's output that are kept; the rest is read and dropped.
const OUTPUT_LIMIT: usize = 8 << 20;

/// Debian's package for each program that the table needs.
const PACKAGES: [(&str, &str); 16] = [
    ("globus-url-copy", "globus-gass-copy-progs"),
    ("globus-gridftp-server", "globus-gridftp-server-progs"),
    (
        "gfal-copy",
        "gfal2-util-scripts python3-gfal2-util gfal2-plugin-gridftp gfal2-plugin-file",
    ),
    ("curl", "curl"),
    ("lftp", "lftp"),
    ("rclone", "rclone"),
    (
        "arccp",
        "nordugrid-arc-client nordugrid-arc-plugins-gridftp",
    ),
    (
        "arcls",
        "nordugrid-arc-client nordugrid-arc-plugins-gridftp",
    ),
    (
        "arcmkdir",
        "nordugrid-arc-client nordugrid-arc-plugins-gridftp",
    ),
    (
        "arcrm",
        "nordugrid-arc-client nordugrid-arc-plugins-gridftp",
    ),
    ("python3", "python3"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver python3-selenium"),
    ("openssl", "openssl"),
    ("grid-proxy-init", "globus-proxy-utils"),
    ("voms-proxy-fake", "voms-clients"),
];

/// A client program with its arguments, environment and input.
#[derive(Debug)]
pub struct Client {
    program: OsString,
    arguments: Vec<OsString>,
    copier: Copier,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
}

impl Client {
    /// `program` as it is found on the path, or an absolute path.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            copier: Copier::GlobusUrlCopy,
            environment: Vec::new(),
            directory: None,
            input: Vec::new(),
            limit: Duration::from_secs(60),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Has this program in the place of `globus-url-copy`, whose arguments these are.
    #[must_use]
    pub fn copier(mut self, copier: &Copier) -> Self {
        self.copier = copier.clone();
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets variables of the program's environment.
    #[must_use]
    pub fn envs(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Runs the program in `directory`.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the standard input of the program. It is empty by default.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Sets the time limit of the program. It is 60 seconds by default.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    ///
    /// When it is not installed, cannot be started, or does not end in time and is killed. A
    /// program that exits with a failure is not an error here: see [`Finished::status`].
    pub fn run(self) -> Result<Finished, ClientError> {
        let started = Instant::now();
        let words = self.copier.line(&self.program, &self.arguments)?;
        let line = self.line(&words);
        let failed = |error| ClientError::Run {
            line: line.clone(),
            error,
        };
        let program = find(&words.program)?;
        let mut group = ProcessGroup::start(self.command(&program, &words)).map_err(failed)?;
        let (copier, input) = (self.copier, self.input);
        let mut stdin = group.leader().stdin.take();
        // Ends when the program has read all input or has exited.
        thread::spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(&input)));
        let stdout = group.leader().stdout.take().map(collect);
        let stderr = group.leader().stderr.take().map(collect);
        let status = group.wait(self.limit).map_err(failed)?;
        let elapsed = started.elapsed();
        // Closes the pipes that a process of the group may still hold, so that the readers end.
        drop(group);
        let stdout = stdout.map(joined).unwrap_or_default();
        let stderr = stderr.map(joined).unwrap_or_default();
        match status {
            Some(status) => Ok(Finished {
                line,
                status,
                stdout: copier.understood(stdout, &words),
                stderr,
                elapsed,
                words: copier.words(&words),
            }),
            None => Err(ClientError::TimedOut {
                line,
                limit: self.limit,
                output: text(&[stdout, stderr].concat()),
            }),
        }
    }

    fn command(&self, program: &Path, words: &Line) -> Command {
        let mut command = Command::new(program);
        command
            .args(&words.arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            // No program can make a directory there, not even as root.
            .env("HOME", "/dev/null")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            // The gfal-* scripts start this interpreter; only Debian's own Python has gfal2.
            .env("GFAL_PYTHONBIN", "/usr/bin/python3")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// The command line as a user would type it.
    fn line(&self, words: &Line) -> String {
        let environment = self
            .environment
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()));
        let words = std::iter::once(&words.program).chain(&words.arguments);
        environment
            .chain(words.map(|word| quoted(&word.to_string_lossy())))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The command line.
    pub line: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its duration.
    pub elapsed: Duration,
    /// What its errors look like.
    pub(super) words: Words,
}

impl Finished {
    /// Standard output and standard error as text.
    pub fn output(&self) -> String {
        let mut output = self.stdout.clone();
        output.extend(&self.stderr);
        text(&output)
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.line)?;
        writeln!(f, "{}", self.output().trim_end())?;
        write!(f, "({}, {:.2} s)", self.status, self.elapsed.as_secs_f64())
    }
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It is not on this machine.
    #[error("{program} is not installed; install Debian's package {package}")]
    NotInstalled {
        /// The program.
        program: String,
        /// The Debian package.
        package: &'static str,
    },
    /// It could not be started or waited for.
    #[error("cannot run `{line}`: {error}")]
    Run {
        /// The command line.
        line: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// The program in its place cannot do it.
    #[error(transparent)]
    Inexpressible(#[from] Inexpressible),
    /// It did not end in time, and was killed.
    #[error("`{line}` did not end within {} s; it had printed: {output}", limit.as_secs())]
    TimedOut {
        /// The command line.
        line: String,
        /// The time limit.
        limit: Duration,
        /// Its output until then.
        output: String,
    },
}

/// Finds a program in the directories of Debian's packages, after that of `GRIDHAUL_CLIENTS`: the tests also run with our client in
/// the place of another one.
pub(crate) fn find(program: &OsStr) -> Result<PathBuf, ClientError> {
    let first = std::env::var_os("GRIDHAUL_CLIENTS").map(PathBuf::from);
    let packages = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    first
        .into_iter()
        .chain(packages)
        .map(|directory| directory.join(program))
        .find(|path| path.exists())
        .ok_or_else(|| {
            let name = program.to_string_lossy().into_owned();
            let package = PACKAGES
                .iter()
                .find(|(known, _)| {
                    *known == name || (name.starts_with("gfal") && *known == "gfal-copy")
                })
                .map_or("of the same name", |(_, package)| package);
            ClientError::NotInstalled {
                program: name,
                package,
            }
        })
}

/// Reads a pipe to its end on a thread of its own and keeps the first [`OUTPUT_LIMIT`] bytes.
pub(crate) fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = pipe
            .by_ref()
            .take(OUTPUT_LIMIT as u64)
            .read_to_end(&mut kept);
        let _ = io::copy(&mut pipe, &mut io::sink());
        kept
    })
}

fn joined(reader: JoinHandle<Vec<u8>>) -> Vec<u8> {
    reader.join().unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_status_and_input_pass_through() {
        let finished = Client::new("sh")
            .args(["-c", "cat; echo $WORD >&2; exit 3"])
            .env("WORD", "two")
            .input("one\n")
            .run()
            .unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(finished.output(), "one\ntwo\n");
        assert_eq!(
            finished.line,
            "WORD=two sh -c 'cat; echo $WORD >&2; exit 3'"
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let error = Client::new("sh")
            .args(["-c", "echo begun; sleep 1000 & wait"])
            .time_limit(Duration::from_millis(200))
            .run()
            .unwrap_err();
        assert!(matches!(&error, ClientError::TimedOut { output, .. } if output == "begun\n"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = Client::new("gfal-nosuch").run().unwrap_err();
        assert!(error.to_string().contains("gfal2-util-scripts"), "{error}");
    }
}
