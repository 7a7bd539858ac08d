//! Calls that read what a client verifies after an upload: its size and its checksum.
//!
//! A member that has not stored the upload answers, if there is one: a member that reports what it has not stored, or has stored it
//! where the others do not see it, cannot answer for itself.
//!
//! Clients of NFS keep attributes and the names of a directory for some seconds, so the other member may see an upload late. They
//! ask the server again when they open the file or the directory (close-to-open consistency, nfs(5)). That happens before an
//! answer counts that differs from the one of the member that has stored the upload.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_stack::Cancel;
use gridhaul_storage::{
    ChecksumAlgorithm, FoundChecksum, Metadata, StorageError, StorageErrorKind,
};
use gridhaul_transfer::{ChecksumRequest, NodeSession};

use super::super::attachments::Attached;
use super::super::choice::Purpose;
use super::super::member::Record;
use super::super::shared::ATTEMPTS;
use super::{ClusterStorage, NOT_SENT};

/// How a member answers.
type Answer<T> = Result<T, StorageError>;

impl ClusterStorage {
    /// The metadata of a file, which a client compares with what it has uploaded. Blocks.
    pub(super) fn verify_metadata(&self, path: &Path) -> Answer<Metadata> {
        let stat = |node: &dyn NodeSession| node.storage().stat(path);
        self.verify(("stat", path), stat, |found, storer| {
            let known = stat(&*storer.session);
            match (found, &known) {
                (Ok(found), Ok(known)) => {
                    (found.size, found.modified) != (known.size, known.modified)
                }
                (Err(_), Ok(_)) | (Ok(_), Err(_)) => true,
                (Err(_), Err(_)) => false,
            }
        })
    }

    /// The checksum of a file, which a client compares with that of what it has uploaded. Blocks.
    pub(in crate::cluster) fn verify_checksum(
        &self,
        request: &ChecksumRequest,
        done: &AtomicU64,
        cancel: &Cancel,
    ) -> Answer<FoundChecksum> {
        let read = |node: &dyn NodeSession| {
            done.store(0, Ordering::Relaxed);
            node.checksum(request, done, cancel)
        };
        // The member opens the file for a checksum, so that only the name can be missing still.
        self.verify(
            ("read", &request.path),
            read,
            |found, _| matches!(found, Err(error) if error.kind() == StorageErrorKind::NotFound),
        )
    }

    /// Reads on another member than those that have stored the file, if there is one. `is_doubtful` gets its answer, and a member
    /// that has stored the file. Blocks.
    fn verify<T>(
        &self,
        (call, path): (&'static str, &Path),
        read: impl Fn(&dyn NodeSession) -> Answer<T>,
        is_doubtful: impl Fn(&Answer<T>, &Attached) -> bool,
    ) -> Answer<T> {
        let storers = self.uploads.members(path);
        let has_stored = |record: &Record| storers.contains(&record.name);
        let present = match storers.is_empty() {
            true => return self.read(call, read),
            false => self.usable(call)?,
        };
        if !has_stored(&present.record) {
            return self.read(call, read);
        }
        let others = self.shared.ranked(Purpose::Session).into_iter();
        let others = others.filter(|(_, record)| !has_stored(record));
        for (_, record) in others.take(ATTEMPTS) {
            let Ok(attached) = self.attachments.to(&record) else {
                continue;
            };
            let mut answer = read(&*attached.session);
            if !is_lost(&answer, &attached) && is_doubtful(&answer, &present) {
                look_anew(&*attached.session, path);
                answer = read(&*attached.session);
            }
            if is_lost(&answer, &attached) {
                continue;
            }
            if let Err(error) = &answer {
                tracing::warn!(
                    node = record.name, stored = storers.join(" "), path = %path.display(), call, %error,
                    "an upload cannot be verified on another data node"
                );
            }
            return answer;
        }
        self.read(call, read)
    }
}

/// Whether the member did not answer.
fn is_lost<T>(answer: &Answer<T>, attached: &Attached) -> bool {
    matches!(answer, Err(error) if error.errno == NOT_SENT || !attached.is_alive())
}

/// Has a member open the directory of a file, and the file: by a checksum of no bytes, as the file cannot be opened from here.
pub(in crate::cluster) fn look_anew(node: &dyn NodeSession, path: &Path) {
    if let Some(directory) = path.parent() {
        // What cannot be opened is not seen better than before.
        let _ = node.storage().list(directory);
    }
    let nothing = ChecksumRequest {
        path: path.to_owned(),
        algorithm: ChecksumAlgorithm::Adler32,
        offset: 0,
        length: Some(0),
    };
    let _ = node.checksum(&nothing, &AtomicU64::new(0), &Cancel::new());
}
