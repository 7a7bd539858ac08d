//! Model test: the checksums that are returned, compared with the content, after arbitrary changes by clients, programs
//! and other servers.

use std::fs::{self, FileTimes};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::ChecksumAlgorithm;
use super::site::{Site, key};
use super::tests::whole;
use super::version::{QUIET, facts, version};
use crate::{Storage as _, StorageError};

/// All of one length: a change of the length is easy to detect.
const CONTENTS: [&[u8]; 3] = [b"content", b"CONTENT", b"0123456"];
const NAMES: [&str; 2] = ["a", "b"];
const ALGORITHMS: [ChecksumAlgorithm; 2] = [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5];

#[derive(Debug, Clone)]
enum Step {
    /// A client stores a file, whose checksum is perhaps computed while it arrives.
    Receive {
        name: usize,
        content: usize,
        summed: bool,
    },
    /// A client requests a checksum. Files count as quiet.
    Ask {
        name: usize,
        algorithm: usize,
    },
    /// A client sets the modification time.
    SetModified {
        name: usize,
        seconds: u64,
    },
    /// The server restarts, perhaps with another key.
    Restart {
        key: u8,
    },
    /// A program writes to a file.
    Write {
        name: usize,
        content: usize,
    },
    /// A program writes to a file, and restores its modification time and attribute.
    WriteInSecret {
        name: usize,
        content: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    /// With time and attribute, as `cp -a` does.
    Copy {
        from: usize,
        to: usize,
    },
    /// Time and attribute of another file, without its content.
    Pretend {
        from: usize,
        to: usize,
    },
    /// A byte of the attribute is changed, or its end is missing.
    Damage {
        name: usize,
        place: usize,
        cut: bool,
    },
    SetMode {
        name: usize,
    },
    /// A client renames a file, while a program perhaps writes to it.
    RenameByClient {
        from: usize,
        to: usize,
        meanwhile: Option<usize>,
    },
    /// A client changes the permissions of a file.
    SetModeByClient {
        name: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let content = || 0..CONTENTS.len();
    prop_oneof![
        4 => (name(), content(), any::<bool>())
            .prop_map(|(name, content, summed)| Step::Receive { name, content, summed }),
        6 => (name(), 0..ALGORITHMS.len())
            .prop_map(|(name, algorithm)| Step::Ask { name, algorithm }),
        2 => (name(), 1..3u64).prop_map(|(name, seconds)| Step::SetModified { name, seconds }),
        3 => (0..2u8).prop_map(|key| Step::Restart { key }),
        2 => (name(), content()).prop_map(|(name, content)| Step::Write { name, content }),
        1 => (name(), content()).prop_map(|(name, content)| Step::WriteInSecret { name, content }),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => (name(), name()).prop_map(|(from, to)| Step::Copy { from, to }),
        1 => (name(), name()).prop_map(|(from, to)| Step::Pretend { from, to }),
        1 => (name(), 0..60usize, any::<bool>())
            .prop_map(|(name, place, cut)| Step::Damage { name, place, cut }),
        1 => name().prop_map(|name| Step::SetMode { name }),
        2 => (name(), name(), prop::option::of(content()))
            .prop_map(|(from, to, meanwhile)| Step::RenameByClient { from, to, meanwhile }),
        1 => name().prop_map(|name| Step::SetModeByClient { name }),
    ]
}

impl Site {
    /// A server whose files have the first content.
    fn with_files() -> Self {
        let site = Self::new(Some(key(0)));
        for name in NAMES {
            fs::write(site.path(name), CONTENTS[0]).unwrap();
        }
        site
    }

    fn attribute(&self, name: &str) -> Option<Vec<u8>> {
        self.storage.checksum_attribute(name.as_ref()).ok()?
    }

    fn set_attribute(&self, name: &str, value: Option<&[u8]>) {
        // A file system without attributes has no invalid ones.
        let _ = self.storage.set_checksum_attribute(name.as_ref(), value);
    }

    fn modified(&self, name: &str) -> SystemTime {
        fs::metadata(self.path(name)).unwrap().modified().unwrap()
    }

    fn set_modified(&self, name: &str, time: SystemTime) {
        let times = FileTimes::new().set_modified(time);
        self.writable(name).set_times(times).unwrap();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Receive {
                name,
                content,
                summed,
            } => self.receive_summed(NAMES[name], CONTENTS[content], summed),
            Step::Ask { name, algorithm } => {
                self.ask(NAMES[name], ALGORITHMS[algorithm]);
            }
            Step::SetModified { name, seconds } => {
                let time = UNIX_EPOCH + Duration::from_secs(seconds);
                let stored = self.stored(NAMES[name]);
                let file = self.open(NAMES[name]);
                let set = self.memory.keep_while_modified(&file, &stored, time);
                set.unwrap();
            }
            Step::Restart { key: byte } => self.restart(key(byte)),
            Step::Write { name, content } => self.write(NAMES[name], CONTENTS[content]),
            Step::WriteInSecret { name, content } => {
                self.write_in_secret(NAMES[name], CONTENTS[content]);
            }
            Step::Rename { from, to } => {
                if from != to {
                    let content = fs::read(self.path(NAMES[from])).unwrap();
                    fs::rename(self.path(NAMES[from]), self.path(NAMES[to])).unwrap();
                    fs::write(self.path(NAMES[from]), content).unwrap();
                }
            }
            Step::Copy { from, to } => {
                let content = fs::read(self.path(NAMES[from])).unwrap();
                fs::write(self.path(NAMES[to]), content).unwrap();
                self.pretend(NAMES[from], NAMES[to]);
            }
            Step::Pretend { from, to } => self.pretend(NAMES[from], NAMES[to]),
            Step::Damage { name, place, cut } => {
                let value = self.attribute(NAMES[name]);
                if let Some(mut value) = value.filter(|value| !value.is_empty()) {
                    let place = place % value.len();
                    if cut {
                        value.truncate(place);
                    } else {
                        value[place] ^= 1;
                    }
                    self.set_attribute(NAMES[name], Some(&value));
                }
            }
            Step::SetMode { name } => {
                let path = self.path(NAMES[name]);
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            Step::RenameByClient {
                from,
                to,
                meanwhile,
            } => {
                if from != to {
                    let content = meanwhile.map(|content| CONTENTS[content]);
                    self.rename_by_client(NAMES[from], NAMES[to], content);
                }
            }
            Step::SetModeByClient { name } => {
                let name = NAMES[name];
                self.relabel([name, name], || self.storage.set_mode(name.as_ref(), 0o640));
            }
        }
    }

    /// Afterwards the old name belongs to a new file.
    fn rename_by_client(&self, from: &str, to: &str, meanwhile: Option<&[u8]>) {
        self.relabel([from, to], || {
            if let Some(content) = meanwhile {
                self.write(from, content);
            }
            self.storage.rename(from.as_ref(), to.as_ref())
        });
        fs::write(self.path(from), CONTENTS[0]).unwrap();
    }

    fn relabel(&self, names: [&str; 2], relabel: impl FnOnce() -> Result<(), StorageError>) {
        let file = self.open(names[0]);
        let stored = names.map(|name| self.stored(name));
        self.memory
            .keep_while_relabelled(&file, (&stored[0], &stored[1]), relabel)
            .unwrap();
    }

    fn receive_summed(&self, name: &str, content: &[u8], summed: bool) {
        let sums = match summed {
            true => vec![(ALGORITHMS[0], whole(ALGORITHMS[0], content))],
            false => Vec::new(),
        };
        self.receive(name, content, sums);
    }

    /// Requests a checksum as `CKSM` does. Returns whether the file had to be read.
    fn ask(&self, name: &str, algorithm: ChecksumAlgorithm) -> bool {
        let (file, stored) = (self.open(name), self.stored(name));
        let truth = whole(algorithm, &fs::read(self.path(name)).unwrap());
        let known = self.memory.recall(&file, algorithm);
        let known = known.or_else(|| self.memory.recall_stored(&file, &stored, algorithm));
        if let Some(known) = known {
            assert_eq!(known, truth, "{name} {algorithm}");
            return false;
        }
        self.wait_for_clock(name, Duration::ZERO);
        let before = version(&file).unwrap();
        let now = SystemTime::now() + QUIET + Duration::from_secs(5);
        self.memory
            .remember_computed((&file, &stored), before, (algorithm, truth), now);
        true
    }

    fn write_in_secret(&self, name: &str, content: &[u8]) {
        let (modified, attribute) = (self.modified(name), self.attribute(name));
        // A change sooner after the value was written is not detected.
        self.wait_for_clock(name, Duration::from_millis(60));
        self.write(name, content);
        self.set_modified(name, modified);
        if attribute.is_some() {
            self.set_attribute(name, attribute.as_deref());
        }
    }

    fn pretend(&self, from: &str, to: &str) {
        if self.attribute(from).is_some() {
            // As above, because the value may be an earlier one of this file.
            self.wait_for_clock(to, Duration::from_millis(60));
        }
        self.set_attribute(to, self.attribute(from).as_deref());
        self.set_modified(to, self.modified(from));
    }

    /// Waits until the file system's clock is later than a file's last change by more than `margin`.
    fn wait_for_clock(&self, name: &str, margin: Duration) {
        let (_, version) = facts(&self.open(name)).unwrap();
        loop {
            let probe = tempfile::tempfile_in(self.directory.path()).unwrap();
            let probe = probe.metadata().unwrap();
            let time = super::version::Time {
                seconds: probe.ctime(),
                nanoseconds: u32::try_from(probe.ctime_nsec()).unwrap(),
            };
            if time
                .since(version.changed)
                .is_some_and(|since| since > margin)
            {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// A server with files, unless this file system has no extended attributes.
fn site_with_attributes() -> Option<Site> {
    Site::with_attributes().map(|_| Site::with_files())
}

#[test]
fn stored_checksums_survive_a_restart() {
    let Some(mut site) = site_with_attributes() else {
        return;
    };
    site.receive_summed("a", CONTENTS[1], true);
    site.take(&Step::Restart { key: 0 });
    assert!(!site.ask("a", ALGORITHMS[0]));
    // A computed checksum is added to the stored ones.
    assert!(site.ask("a", ALGORITHMS[1]));
    site.take(&Step::SetModified {
        name: 0,
        seconds: 1,
    });
    site.take(&Step::Restart { key: 0 });
    assert!(!site.ask("a", ALGORITHMS[0]) && !site.ask("a", ALGORITHMS[1]));
    site.take(&Step::Restart { key: 1 });
    assert!(site.ask("a", ALGORITHMS[0]));
}

#[test]
fn a_computed_checksum_is_stored_with_the_file() {
    let Some(mut site) = site_with_attributes() else {
        return;
    };
    assert!(site.ask("b", ALGORITHMS[1]));
    assert!(!site.ask("b", ALGORITHMS[1]));
    site.take(&Step::Restart { key: 0 });
    assert!(!site.ask("b", ALGORITHMS[1]));
}

#[test]
fn setting_the_modification_time_does_not_revive_an_old_value() {
    let Some(mut site) = site_with_attributes() else {
        return;
    };
    let set = Step::SetModified {
        name: 0,
        seconds: 1,
    };
    site.receive_summed("a", CONTENTS[1], true);
    site.take(&set);
    site.receive_summed("a", CONTENTS[2], false);
    site.take(&set);
    assert_eq!(site.attribute("a"), None);
    assert!(site.ask("a", ALGORITHMS[0]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn every_returned_checksum_is_that_of_the_content(steps in prop::collection::vec(step(), 1..30)) {
        let mut site = Site::with_files();
        for step in &steps {
            site.take(step);
        }
        for name in NAMES {
            for algorithm in ALGORITHMS {
                site.ask(name, algorithm);
            }
        }
    }
}
