//! Which members have stored the uploads of a session, so that others answer for their size and checksum.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{Event, EventSink, Placement, Plan, Task};

use crate::sync::lock;

/// The uploads that are remembered: clients ask for size and checksum soon after an upload.
const MOST: usize = 64;

/// The last uploads of a session.
#[derive(Debug, Default)]
pub(super) struct Uploads(Mutex<VecDeque<Upload>>);

#[derive(Debug)]
struct Upload {
    path: PathBuf,
    members: Vec<String>,
}

impl Uploads {
    /// The members that have stored the file, or a part of it. Empty if the session does not know.
    pub(super) fn members(&self, path: &Path) -> Vec<String> {
        let all = lock(&self.0);
        let found = all.iter().find(|upload| upload.path == path);
        found.map_or_else(Vec::new, |upload| upload.members.clone())
    }

    /// The file has another name, or the directory with the files beneath it.
    pub(super) fn rename(&self, from: &Path, to: &Path) {
        if from == to {
            return;
        }
        let mut all = lock(&self.0);
        all.retain(|upload| !upload.path.starts_with(to));
        for upload in all.iter_mut() {
            if let Ok(beneath) = upload.path.strip_prefix(from) {
                // An empty path would add a separator at the end.
                upload.path = match beneath == Path::new("") {
                    true => to.to_owned(),
                    false => to.join(beneath),
                };
            }
        }
    }

    fn note(&self, path: PathBuf, is_whole: bool, mut members: Vec<String>) {
        let mut all = lock(&self.0);
        if let Some(place) = all.iter().position(|upload| upload.path == path)
            && let Some(before) = all.remove(place)
            && !is_whole
        {
            members.extend(before.members);
            members.sort();
            members.dedup();
        }
        all.truncate(MOST - 1);
        all.push_front(Upload { path, members });
    }
}

/// Notes the members of an upload when it ends, before `events` learns it.
pub(super) fn noting(uploads: Arc<Uploads>, plan: &Plan, events: EventSink) -> EventSink {
    let Task::ReceiveFile {
        path,
        placement,
        restart,
        ..
    } = &plan.task
    else {
        return events;
    };
    let path = path.clone();
    let is_whole = *placement == Placement::Replace && *restart == RangeSet::new();
    Box::new(move |event| {
        // An upload that failed may have left a part, which another member completes.
        if let Event::Finished(outcome) = &event
            && (outcome.result.is_ok() || outcome.bytes > 0)
        {
            let members = outcome.nodes.iter().map(|node| node.name.clone());
            uploads.note(path.clone(), is_whole, members.collect());
        }
        events(event);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn parts_add_their_members_and_a_whole_file_replaces_them() {
        let uploads = Uploads::default();
        let path = Path::new("/a");
        assert!(uploads.members(path).is_empty());
        uploads.note(path.into(), true, names(&["dtn2"]));
        uploads.note(path.into(), false, names(&["dtn1"]));
        assert_eq!(uploads.members(path), names(&["dtn1", "dtn2"]));
        uploads.note(path.into(), true, names(&["dtn3"]));
        assert_eq!(uploads.members(path), names(&["dtn3"]));
        uploads.note("/b".into(), true, names(&["dtn4"]));
        uploads.rename(Path::new("/b"), path);
        assert_eq!(uploads.members(path), names(&["dtn4"]));
        assert!(uploads.members(Path::new("/b")).is_empty());
    }

    #[test]
    fn files_move_with_their_directory() {
        let uploads = Uploads::default();
        for path in ["/d/a", "/d/e/b", "/dd/c", "/new/old", "/d"] {
            uploads.note(path.into(), true, names(&[path]));
        }
        uploads.rename(Path::new("/d"), Path::new("/new"));
        for (path, before) in [
            ("/new/a", "/d/a"),
            ("/new/e/b", "/d/e/b"),
            ("/dd/c", "/dd/c"),
        ] {
            assert_eq!(uploads.members(Path::new(path)), names(&[before]));
        }
        assert_eq!(uploads.members(Path::new("/new")), names(&["/d"]));
        let all = lock(&uploads.0);
        let shown = all.iter().map(|upload| upload.path.to_str());
        assert!(shown.flatten().all(|path| !path.ends_with('/')), "{all:?}");
        drop(all);
        for path in ["/d", "/d/a", "/new/old"] {
            assert!(uploads.members(Path::new(path)).is_empty(), "{path}");
        }
        uploads.rename(Path::new("/new/a"), Path::new("/new/a"));
        assert_eq!(uploads.members(Path::new("/new/a")), names(&["/d/a"]));
    }

    #[test]
    fn the_last_ones_are_remembered() {
        let uploads = Uploads::default();
        for number in 0..=MOST {
            uploads.note(format!("/{number}").into(), true, names(&["dtn1"]));
        }
        assert!(uploads.members(Path::new("/0")).is_empty());
        assert!(!uploads.members(Path::new("/1")).is_empty());
        assert_eq!(lock(&uploads.0).len(), MOST);
    }
}
