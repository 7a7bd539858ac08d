//! Leak test with many small files.
//!
//! `globus-url-copy` copies them between two directories of one server, with pipelined commands over cached
//! data channels and four pairs of sessions. A tenth of the files are copied first, so that the server has filled its
//! caches; afterwards its resource usage must return to that level.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::soak::{KEPT_DESCRIPTORS, KEPT_MEMORY, settled};
use crate::support::usage::{ProcessTree, Usage, raise_descriptor_limit};
use crate::support::{Client, Kind, Launch, LaunchError, Server, chown_to_nobody};

/// A copy without a new file for this long has stalled.
const STALL: Duration = Duration::from_secs(10);

/// The time limit of a copy.
const LIMIT: Duration = Duration::from_secs(1800);

/// The thread that the server starts with the first small file and keeps: it watches sessions that access
/// files on their own thread.
const KEPT_THREADS: usize = 1;

/// The interval at which arrived files are counted.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The files to copy.
#[derive(Debug, Clone, Copy)]
pub struct SmallFiles {
    /// The number of files.
    pub files: usize,
    /// Bytes of each.
    pub bytes: usize,
}

/// The result of a copy.
#[derive(Debug)]
pub struct Copied {
    files: SmallFiles,
    elapsed: Duration,
    before: Usage,
    peak: Usage,
    after: Usage,
    errors: Vec<String>,
}

impl SmallFiles {
    /// Copies them beneath `scratch`.
    ///
    /// # Errors
    ///
    /// When the server does not start, or the files cannot be made. Later errors are in the
    /// result.
    pub fn run(self, scratch: &Path) -> Result<Copied, LaunchError> {
        let root = scratch.join("served");
        fs::create_dir(&root)?;
        chown_to_nobody(&root)?;
        let first = self.files / 10;
        self.make(&root.join("first"), first)?;
        self.make(&root.join("all"), self.files)?;
        raise_descriptor_limit();
        let server = Launch::new(Kind::Gridhaul, &root).start()?;
        let tree = ProcessTree::of(server.pid());
        let mut empty = tree.usage();
        empty.threads += KEPT_THREADS;
        empty.descriptors += KEPT_DESCRIPTORS;
        let mut errors = Vec::new();
        self.copy(&server, "first", first, tree, &mut errors);
        let memory = settled(tree, empty, u64::MAX).memory;
        let before = Usage { memory, ..empty };
        let begin = Instant::now();
        let peak = self.copy(&server, "all", self.files, tree, &mut errors);
        let elapsed = begin.elapsed();
        let after = settled(tree, before, KEPT_MEMORY);
        Ok(Copied {
            files: self,
            elapsed,
            before,
            peak,
            after,
            errors,
        })
    }

    fn make(self, directory: &Path, files: usize) -> Result<(), LaunchError> {
        fs::create_dir(directory)?;
        let content = vec![b'm'; self.bytes];
        for index in 0..files {
            fs::write(directory.join(format!("f{index:06}")), &content)?;
        }
        Ok(())
    }

    /// Copies a directory; returns the maximum of the server's resource usage.
    fn copy(
        self,
        server: &Server,
        name: &str,
        files: usize,
        tree: ProcessTree,
        errors: &mut Vec<String>,
    ) -> Usage {
        let (from, to) = (format!("{name}/"), format!("{name}-copied/"));
        let arrived = server.root().join(&to);
        let client = Client::new("globus-url-copy")
            .args(["-fast", "-pp", "-cc", "4", "-r", "-cd"])
            .arg(server.url(&from))
            .arg(server.url(&to))
            .time_limit(LIMIT);
        let (done, is_done) = mpsc::channel::<()>();
        let mut peak = tree.usage();
        let finished = thread::scope(|scope| {
            let running = scope.spawn(move || {
                let _done = done;
                client.run()
            });
            let (mut seen, mut since) = (0, Instant::now());
            while is_done.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                peak = peak.most(tree.usage());
                let count = count(&arrived);
                if count > seen {
                    (seen, since) = (count, Instant::now());
                } else if since.elapsed() > STALL {
                    errors.push(format!("{name}: no file arrived after {seen} files"));
                    since = Instant::now();
                }
            }
            running.join()
        });
        match finished {
            Ok(Ok(finished)) if finished.status.success() => {}
            Ok(Ok(finished)) => errors.push(finished.to_string()),
            Ok(Err(error)) => errors.push(error.to_string()),
            Err(_) => errors.push("the thread of the client panicked".to_owned()),
        }
        errors.extend(self.check_arrived(&arrived, files));
        peak
    }

    /// An error unless all files have arrived with their full length.
    fn check_arrived(self, arrived: &Path, files: usize) -> Option<String> {
        let whole = |entry: &fs::DirEntry| {
            let length = entry.metadata().map(|metadata| metadata.len());
            length.is_ok_and(|length| length == self.bytes as u64)
        };
        let entries = fs::read_dir(arrived).into_iter().flatten().flatten();
        let count = entries.filter(whole).count();
        (count != files).then(|| format!("{count} of {files} files arrived with full length"))
    }
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

impl Copied {
    /// The errors of the copy, and leaked resources.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.errors.clone();
        if !self.after.is_back_to(self.before, KEPT_MEMORY) {
            problems.push("the server did not release all resources".to_owned());
        }
        problems
    }
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SmallFiles { files, bytes } = self.files;
        let seconds = self.elapsed.as_secs_f64();
        writeln!(f, "{files} files of {bytes} bytes in {seconds:.1} s")?;
        for (name, usage) in [
            ("before", self.before),
            ("peak", self.peak),
            ("after", self.after),
        ] {
            writeln!(
                f,
                "{name:<8} {} processes, {} threads, {} descriptors, {} KiB",
                usage.processes,
                usage.threads,
                usage.descriptors,
                usage.memory >> 10,
            )?;
        }
        self.problems()
            .iter()
            .try_for_each(|problem| writeln!(f, "error: {problem}"))
    }
}
