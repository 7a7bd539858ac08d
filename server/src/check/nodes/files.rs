//! Whether all nodes have the same files: one makes a directory, and the others must see it at once.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_storage::{Account, Metadata, StorageError};
use gridhaul_transfer::NodeSession;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::accounts::{Attached, Session};
use super::patience::Patience;
use super::{ABOUT, of};
use crate::check::report::{Report, Verdict};

/// For a directory, and again for the look at it.
const LIMIT: Duration = Duration::from_secs(10);

/// How long a node that does not see the directory at once is asked again: network file systems remember what was not there.
const LATE: Duration = Duration::from_secs(4);

/// The directory that a node has made. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Shared {
    /// Its path for sessions of `account`.
    pub(super) path: PathBuf,
    pub(super) account: Option<String>,
    /// The node that made it.
    creator: String,
    session: Arc<dyn NodeSession>,
    /// The names of the nodes that see it.
    seen_by: Vec<String>,
    is_removed: bool,
}

/// How a node sees the directory.
enum Seen {
    Now(Metadata),
    After(Duration),
    Never(String),
}

/// Makes a directory through one node, and looks for it through the others. `None` if there is no place for it.
pub(super) fn check(
    report: &mut Report,
    attached: &[Attached],
    patience: &Patience,
) -> Option<Shared> {
    let makers = attached.to_vec();
    // Also after a signal: a directory that is being made must be known, so that it is removed.
    let made = patience.finally(LIMIT, move || make(&makers));
    let mut shared = match made {
        Some(Ok(shared)) => shared,
        Some(Err(reason)) => {
            compare_roots(report, attached, &reason, patience);
            return None;
        }
        None => {
            report.error(
                ABOUT,
                "a directory was not made in time: does a file system hang?",
            );
            return None;
        }
    };
    let (path, account) = (shared.path.clone(), shared.account.clone());
    let look = move |node: Attached| look(&node, account.as_deref(), &path);
    let Ok(seen) = patience.each(LIMIT + LATE, attached.to_vec(), look) else {
        return Some(shared);
    };
    let mut owners: Option<(String, Account)> = None;
    let mut hidden = Vec::new();
    for (Attached { node, .. }, seen) in attached.iter().zip(seen) {
        match seen {
            Some(Seen::Now(found)) => {
                shared.seen_by.push(node.name.clone());
                let (first, owner) =
                    owners.get_or_insert_with(|| (node.name.clone(), found.owner.clone()));
                if *owner != found.owner {
                    let text = different(first, owner, &node.name, &found.owner);
                    report.warning(ABOUT, text);
                }
            }
            Some(Seen::After(time)) => {
                shared.seen_by.push(node.name.clone());
                report.warning(ABOUT, of(&node.name, &shared.late(time)));
            }
            Some(Seen::Never(reason)) => hidden.push(of(&node.name, &shared.hidden(&reason))),
            None => hidden.push(of(
                &node.name,
                &shared.hidden("it has not answered in time"),
            )),
        }
    }
    if hidden.is_empty() && attached.len() > 1 {
        let text = format!("all nodes see a directory that {} has made", shared.creator);
        report.ok(ABOUT, text);
    }
    report.problems(Verdict::Error, ABOUT, hidden);
    Some(shared)
}

/// Makes the directory, at the first place where an account may. The error is the first reason why not.
fn make(attached: &[Attached]) -> Result<Shared, String> {
    let name = format!(".gridhaul-check-{}", random()?);
    let mut first = None;
    for Attached { node, sessions, .. } in attached {
        for Session {
            account,
            node: session,
        } in sessions
        {
            let storage = session.storage();
            for place in places(session.as_ref()) {
                let path = place.join(&name);
                match storage.make_directory(&path) {
                    Ok(()) => {
                        return Ok(Shared {
                            path,
                            account: account.clone(),
                            creator: node.name.clone(),
                            session: Arc::clone(session),
                            seen_by: Vec::new(),
                            is_removed: false,
                        });
                    }
                    Err(error) => {
                        let who = account.as_deref().unwrap_or("the account of the node");
                        let text = format!("{}: {who}, {}: {error}", node.name, place.display());
                        first.get_or_insert(text);
                    }
                }
            }
        }
    }
    Err(first.unwrap_or_else(|| "no account can be used".to_owned()))
}

/// Where an account may have the right to make a directory.
fn places(session: &dyn NodeSession) -> Vec<PathBuf> {
    let root = PathBuf::from("/");
    let home = session.home();
    match home == root {
        true => vec![root],
        false => vec![home, root],
    }
}

fn look(attached: &Attached, account: Option<&str>, path: &Path) -> Seen {
    /// Between two looks.
    const PAUSE: Duration = Duration::from_millis(200);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let session = match attached.again(account, here) {
        Ok(session) => session,
        Err(reason) => return Seen::Never(reason),
    };
    let storage = session.storage();
    let began = Instant::now();
    let mut first = true;
    loop {
        match storage.stat(path) {
            Ok(found) if first => return Seen::Now(found),
            Ok(_) => return Seen::After(began.elapsed()),
            Err(error) if error.errno == Errno::NOENT && began.elapsed() < LATE => {
                first = false;
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Seen::Never(error.to_string()),
        }
    }
}

impl Shared {
    /// Whether a node sees the directory.
    pub(super) fn is_seen_by(&self, node: &str) -> bool {
        self.seen_by.iter().any(|name| name == node)
    }

    fn hidden(&self, reason: &str) -> String {
        format!(
            "it does not see {}, which {} has just made ({reason}): nodes need the same files beneath --root, so compare what is \
             mounted there",
            self.path.display(),
            self.creator
        )
    }

    fn late(&self, after: Duration) -> String {
        format!(
            "it has seen {}, which {} had made, only after {:.1} s: sessions need that at once, so mount the file system with \
             lookupcache=none, or the like",
            self.path.display(),
            self.creator,
            after.as_secs_f64()
        )
    }

    /// Removes the directory, with all that is in it.
    pub(super) fn remove(mut self, report: &mut Report, patience: &Patience) {
        let (session, path) = (Arc::clone(&self.session), self.path.clone());
        let removed = patience.finally(LIMIT, move || remove(session.as_ref(), &path));
        self.is_removed = true;
        let reason = match removed {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => "it has not answered in time".to_owned(),
        };
        let text = format!("{} is left ({reason}): remove it", self.path.display());
        report.warning(ABOUT, of(&self.creator, &text));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_removed {
            // The report is written already, or its thread is gone.
            let _ = remove(self.session.as_ref(), &self.path);
        }
    }
}

fn remove(session: &dyn NodeSession, path: &Path) -> Result<(), StorageError> {
    session.storage().remove_tree(path, &|| false)
}

/// Without a place for files, the numbers of the root tell apart what is not the same file system.
fn compare_roots(report: &mut Report, attached: &[Attached], reason: &str, patience: &Patience) {
    let usable = attached.iter().filter(|node| !node.sessions.is_empty());
    let usable: Vec<_> = usable.cloned().collect();
    let root = |node: Attached| {
        let session = node.sessions.first()?;
        session.node.storage().stat(Path::new("/")).ok()
    };
    let Ok(roots) = patience.each(LIMIT, usable.clone(), root) else {
        return;
    };
    let mut roots = usable.iter().zip(roots.into_iter().map(Option::flatten));
    let text = format!(
        "no account can make a directory ({reason}), so it was not tried whether all nodes have the same files"
    );
    report.warning(ABOUT, text);
    let Some((first, Some(expected))) = roots.next() else {
        return;
    };
    let others = roots.filter_map(|(node, found)| Some((node, found?)));
    let others = others.filter(|(_, found)| found.inode != expected.inode);
    let problems = others.map(|(node, _)| {
        format!(
            "the roots of {} and {} are different directories: nodes need the same files beneath --root",
            first.node.name, node.node.name
        )
    });
    report.problems(Verdict::Warning, ABOUT, problems);
}

fn different(first: &str, owner: &Account, second: &str, other: &Account) -> String {
    let shown = |account: &Account| match &account.name {
        Some(name) => format!("{name} ({})", account.id),
        None => format!("number {}, which has no name there", account.id),
    };
    format!(
        "the owner of the same directory is {} on {first} and {} on {second}: give accounts the same names and numbers on all \
         machines",
        shown(owner),
        shown(other)
    )
}

/// A name that does not exist yet: 128 random bits, in hexadecimal.
pub(super) fn random() -> Result<String, String> {
    let mut bytes = [0_u8; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| format!("the kernel has no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
