//! What is copied.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::programs::{Program, Task};
use crate::bench::files::{Files, Sizes};
use crate::bench::testbed::{Place, RunError, Testbed};
use crate::support::{Kind, chown_to_nobody};

/// One thing that all clients do.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    work: Work,
    place: Place,
    /// Connections of each file.
    channels: u8,
    /// How many times as fast as globus-url-copy.
    pub(super) target: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Get(Files),
    Put(Files),
    Between(Files),
    /// A tree of the client whose copy is complete.
    Unchanged,
}

/// The files in a directory of the tree that is compared.
const IN_DIRECTORY: usize = 1000;

/// All rows.
pub(super) fn all() -> Vec<Row> {
    use Files::{Large, Medium, Small};
    use Place::{Certified, Memory};
    use Work::{Between, Get, Put, Unchanged};

    let row = |name, work, place, channels, target| Row {
        name,
        work,
        place,
        channels,
        target,
    };
    vec![
        row("large-get-1", Get(Large), Memory, 1, 1.2),
        row("large-get-4", Get(Large), Memory, 4, 1.2),
        row("large-put-1", Put(Large), Memory, 1, 1.2),
        row("large-put-4", Put(Large), Memory, 4, 1.2),
        // The servers are the bottleneck.
        row("large-between-1", Between(Large), Memory, 1, 1.0),
        row("large-between-4", Between(Large), Memory, 4, 1.0),
        row("private-get-4", Get(Large), Certified, 4, 2.0),
        row("private-put-4", Put(Large), Certified, 4, 2.0),
        row("small-get", Get(Small), Memory, 1, 3.0),
        row("small-put", Put(Small), Memory, 1, 3.0),
        row("small-between", Between(Small), Memory, 1, 3.0),
        row("medium-get", Get(Medium), Memory, 1, 2.0),
        row("medium-put", Put(Medium), Memory, 1, 2.0),
        row("medium-between", Between(Medium), Memory, 1, 2.0),
        row("unchanged", Unchanged, Memory, 1, 1.0),
    ]
}

impl Row {
    pub(super) fn description(&self) -> String {
        let files = |files| match files {
            Files::Large => "a large file",
            Files::Small => "files of 4 KiB",
            _ => "files of 1 MiB",
        };
        let words = match self.work {
            Work::Get(what) => format!("get {}", files(what)),
            Work::Put(what) => format!("put {}", files(what)),
            Work::Between(what) => format!("{} between two servers", files(what)),
            Work::Unchanged => "compare a tree whose copy is complete".to_owned(),
        };
        let private = match self.place {
            Place::Certified => ", encrypted",
            _ => "",
        };
        match self.channels {
            1 => format!("{words}{private}"),
            count => format!("{words}{private}, {count} connections"),
        }
    }

    /// Whether the program can do it. The paths of the real server begin at the root of the machine, which curl and rclone do not.
    pub(super) fn runs(&self, program: Program, kind: Kind) -> bool {
        program.is_grid()
            || kind == Kind::Gridhaul
                && self.place == Place::Memory
                && self.channels == 1
                && matches!(self.work, Work::Get(_) | Work::Put(_))
    }

    /// Lets a program do it, and checks the copies.
    pub(super) fn run(
        &self,
        program: Program,
        testbed: &Testbed,
        kind: Kind,
    ) -> Result<Duration, RunError> {
        let servers = testbed.servers(kind, self.place)?;
        let mut task = Task {
            from: String::new(),
            to: String::new(),
            server: servers[0].address(),
            files: Files::Large,
            count: 1,
            channels: self.channels,
            place: self.place,
            is_sync: false,
        };
        let (Work::Get(files) | Work::Put(files) | Work::Between(files)) = self.work else {
            let (local, name) = tree(testbed)?;
            task.is_sync = true;
            task.from = format!("file://{}/", local.display());
            task.to = servers[0].url(&format!("{name}/"));
            return program.run(&task);
        };
        let name = testbed.name(self.place, files)?;
        let (count, _) = files.count_and_bytes(testbed.sizes);
        let target = match files {
            Files::Large => "up/large",
            _ => "up/",
        };
        (task.files, task.count) = (files, count);
        (task.from, task.to) = match self.work {
            Work::Get(_) if files == Files::Large => {
                (servers[0].url(name), format!("{}large", testbed.down()))
            }
            Work::Get(_) => (servers[0].url(name), testbed.down()),
            Work::Put(_) => (testbed.local(files)?, servers[0].url(target)),
            _ => (servers[0].url(name), servers[1].url(target)),
        };
        let took = program.run(&task).inspect_err(|_| drop(testbed.clear()))?;
        testbed.clear_exactly(count, files.total(testbed.sizes))?;
        Ok(took)
    }
}

/// A tree of empty files and its copy at the servers, which are made at the first call.
fn tree(testbed: &Testbed) -> Result<(std::path::PathBuf, &'static str), RunError> {
    const NAME: &str = "compared";

    let root = testbed.tree(Place::Memory).root();
    let (copy, local) = (root.join(NAME), root.with_file_name(NAME));
    if !copy.exists() {
        // As many as a site has in a project.
        let is_quick = testbed.sizes.small < Sizes::FULL.small;
        let entries = if is_quick {
            IN_DIRECTORY
        } else {
            100 * IN_DIRECTORY
        };
        for place in [&local, &copy] {
            for directory in 0..entries / IN_DIRECTORY {
                fill(&place.join(format!("d{directory:03}")))?;
            }
        }
        chown_to_nobody(&copy)?;
    }
    Ok((local, NAME))
}

fn fill(directory: &Path) -> Result<(), RunError> {
    fs::create_dir_all(directory)?;
    for number in 0..IN_DIRECTORY {
        fs::write(directory.join(format!("f{number:04}")), "")?;
    }
    Ok(())
}
