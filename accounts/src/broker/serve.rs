//! Answers requests.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridhaul_storage::{
    Entries, FileIdentity, OpenedFile, PosixStorage, Storage, StorageError, UploadOpening,
    WriteMode,
};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::facts::{Entry, Facts};
use crate::messages::{BROKER, ENTRIES_BYTES, Failure, REQUEST_BYTES, Reply, Request, path};
use crate::socket::{self, Received};

/// The stack of a thread in bytes; requests and answers are on it.
pub(super) const STACK: usize = 256 * 1024;

/// The maximum number of listings in progress. Each holds a directory and some hundred kilobytes of entries.
pub(super) const LISTINGS: usize = 256;

/// The entries of a listing that are read together, about as many as a message has.
const RUN_ENTRIES: usize = 256;

/// Answers requests for the files of an account, and keeps the listings in progress.
pub(crate) struct Handler {
    storage: PosixStorage,
    listings: Mutex<Listings>,
}

#[derive(Default)]
struct Listings {
    open: BTreeMap<u32, Entries>,
    /// Includes the listings that a thread is reading, which are not in the map.
    count: usize,
    last: u32,
}

/// An answer, and the file whose descriptors are sent with it.
type Answer = Result<(Reply, Option<OpenedFile>), StorageError>;

impl Handler {
    pub(crate) fn new(storage: PosixStorage) -> Self {
        Self {
            storage,
            listings: Mutex::default(),
        }
    }

    /// Answers one request after another until the other end is closed.
    pub(crate) fn serve(&self, socket: &OwnedFd) {
        let mut buffer = [0; REQUEST_BYTES];
        let mut unwanted = Vec::new();
        while let Ok(Received::Message(bytes)) = socket::receive(socket, &mut buffer, &mut unwanted)
        {
            unwanted.clear();
            let answer = match postcard::from_bytes(&buffer[..bytes]) {
                // Too late: the removal was answered already.
                Ok(Request::Cancel) => continue,
                Ok(request) => self.answer(request, socket.as_fd()),
                Err(_) => Err(StorageError::new(BROKER, Errno::PROTO)),
            };
            let (reply, file) =
                answer.unwrap_or_else(|error| (Reply::Failed(Failure::new(&error)), None));
            let Ok(message) = postcard::to_stdvec(&reply) else {
                return;
            };
            let file = file.as_ref();
            let descriptors: Vec<BorrowedFd<'_>> = file
                .map(OpenedFile::as_fd)
                .into_iter()
                .chain(file.and_then(OpenedFile::direct))
                .collect();
            if socket::send(socket, &message, &descriptors).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: Request<'_>, socket: BorrowedFd<'_>) -> Answer {
        let storage = &self.storage;
        let done = |result: Result<(), StorageError>| result.map(|()| (Reply::Done, None));
        let opened = |file| (Reply::Opened, Some(file));
        match request {
            Request::OpenRead { path: file, direct } => {
                let file = path(file);
                let result = if direct {
                    storage.open_read_direct(file)
                } else {
                    storage.open_read(file)
                };
                result.map(opened)
            }
            Request::OpenWrite {
                path: file,
                truncate,
                create,
                direct,
            } => {
                let file = path(file);
                let mode = match (truncate, create) {
                    (true, _) => WriteMode::Truncate,
                    (false, true) => WriteMode::Keep,
                    (false, false) => WriteMode::Existing,
                };
                let result = if direct {
                    storage.open_write_direct(file, mode)
                } else {
                    storage.open_write(file, mode)
                };
                result.map(opened)
            }
            Request::CheckRoot => match storage.is_current()? {
                true => Ok((Reply::Done, None)),
                false => Err(StorageError::new("stat", Errno::STALE)),
            },
            Request::Stat(file) => {
                let facts = storage.stat(path(file))?;
                Ok((Reply::Facts(Facts::new(facts)), None))
            }
            Request::List(directory) => {
                let listed = storage.list(path(directory))?;
                self.list(Entries::new(listed, RUN_ENTRIES))
            }
            Request::Continue(listing) => self.go_on(listing),
            Request::Forget(listing) => {
                self.forget(listing);
                Ok((Reply::Done, None))
            }
            Request::MakeDirectory(directory) => done(storage.make_directory(path(directory))),
            Request::RemoveFile(file) => done(storage.remove_file(path(file))),
            Request::RemoveDirectory(directory) => done(storage.remove_directory(path(directory))),
            Request::RemoveTree(tree) => {
                done(storage.remove_tree(path(tree), &|| has_message(socket)))
            }
            Request::Cancel => Ok((Reply::Done, None)),
            Request::Rename { from, to } => done(storage.rename(path(from), path(to))),
            Request::SetMode { path: file, mode } => done(storage.set_mode(path(file), mode)),
            Request::SetGroup { path: file, group } => {
                // No group has an empty name.
                let group = group.map_or_else(String::new, |group| group.to_string());
                done(storage.set_group(path(file), &group))
            }
            Request::SetModified { path: file, time } => {
                done(storage.set_modified(path(file), time.into_system()))
            }
            Request::Symlink { target, link } => done(storage.symlink(path(target), path(link))),
            Request::Truncate { path: file, length } => done(storage.truncate(path(file), length)),
            Request::ChecksumAttribute(file) => {
                let value = storage.checksum_attribute(path(file))?;
                Ok((Reply::Attribute(value), None))
            }
            Request::SetChecksumAttribute { path: file, value } => {
                done(storage.set_checksum_attribute(path(file), value))
            }
            Request::OpenUpload {
                path: file,
                create,
                private,
                direct,
            } => {
                let opening = UploadOpening {
                    create,
                    private,
                    direct,
                };
                storage.open_upload(path(file), opening).map(opened)
            }
            Request::CompleteUpload {
                from,
                to,
                device,
                inode,
                durable,
            } => {
                let identity = FileIdentity { device, inode };
                done(storage.complete_upload(path(from), path(to), identity, durable))
            }
        }
    }

    /// Begins a listing. A short one is answered at once and is not kept.
    fn list(&self, mut listed: Entries) -> Answer {
        let (entries, ended) = next_entries(&mut listed)?;
        let mut more = None;
        if !ended {
            let mut listings = self.listings();
            if listings.count >= LISTINGS {
                return Err(StorageError::new("scandir", Errno::MFILE));
            }
            // Numbers repeat after four billion listings; no listing is in progress for so long.
            let number = listings.last.wrapping_add(1);
            listings.last = number;
            listings.count += 1;
            listings.open.insert(number, listed);
            more = Some(number);
        }
        Ok((Reply::Entries { entries, more }, None))
    }

    fn go_on(&self, number: u32) -> Answer {
        let Some(mut listed) = self.listings().open.remove(&number) else {
            return Err(StorageError::new("scandir", Errno::BADF));
        };
        let entries = next_entries(&mut listed);
        let mut listings = self.listings();
        let more = match entries {
            Ok((_, false)) => {
                listings.open.insert(number, listed);
                Some(number)
            }
            _ => {
                listings.count -= 1;
                None
            }
        };
        let (entries, _) = entries?;
        Ok((Reply::Entries { entries, more }, None))
    }

    fn forget(&self, number: u32) {
        let mut listings = self.listings();
        if listings.open.remove(&number).is_some() {
            listings.count -= 1;
        }
    }

    fn listings(&self) -> MutexGuard<'_, Listings> {
        // No operation under the lock can panic.
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entries for the next message, and whether they are the last.
fn next_entries(listed: &mut Entries) -> Result<(Vec<Entry>, bool), StorageError> {
    let mut entries = Vec::new();
    let mut bytes = 0;
    while bytes < ENTRIES_BYTES {
        let Some(entry) = listed.next_entry()? else {
            return Ok((entries, true));
        };
        let entry = Entry::new(entry);
        bytes += entry.bytes();
        entries.push(entry);
    }
    Ok((entries, false))
}

/// Whether the server has sent a message during a call, which asks to cancel it, or has closed the socket.
fn has_message(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(
        rustix::net::recv(socket, &mut [0; 1], flags),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

#[cfg(test)]
mod tests {
    use gridhaul_storage::PosixOptions;

    use super::*;
    use crate::messages::REPLY_BYTES;

    /// A handler in this process, tested with raw messages.
    fn with_broker(test: impl FnOnce(&std::path::Path, &OwnedFd)) {
        let directory = tempfile::tempdir().unwrap();
        let storage = PosixStorage::open(directory.path(), PosixOptions::default()).unwrap();
        let handler = Handler::new(storage);
        let (ours, theirs) = socket::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let theirs = theirs;
                handler.serve(&theirs);
            });
            let ours = ours;
            test(directory.path(), &ours);
        });
    }

    fn ask(socket: &OwnedFd, message: &[u8]) -> Reply {
        socket::send(socket, message, &[]).unwrap();
        answer(socket)
    }

    fn answer(socket: &OwnedFd) -> Reply {
        let mut buffer = vec![0; REPLY_BYTES];
        match socket::receive(socket, &mut buffer, &mut Vec::new()).unwrap() {
            Received::Message(bytes) => postcard::from_bytes(&buffer[..bytes]).unwrap(),
            Received::End => panic!("the broker is gone"),
        }
    }

    fn encoded(request: Request<'_>) -> Vec<u8> {
        postcard::to_stdvec(&request).unwrap()
    }

    fn errno(reply: Reply) -> Option<Errno> {
        match reply {
            Reply::Failed(failure) => Some(failure.into_error().errno),
            _ => None,
        }
    }

    #[test]
    fn malformed_requests_are_refused_and_the_next_one_is_answered() {
        with_broker(|_, socket| {
            for nonsense in [&[255; 100][..], &[0, 200, 1], &[1]] {
                assert_eq!(errno(ask(socket, nonsense)), Some(Errno::PROTO));
            }
            // A cancellation has no answer, so the next answer is that of the following request.
            socket::send(socket, &encoded(Request::Cancel), &[]).unwrap();
            let facts = ask(socket, &encoded(Request::Stat(b"/")));
            assert!(matches!(facts, Reply::Facts(_)));
        });
    }

    #[test]
    fn a_listing_can_be_abandoned_and_unknown_numbers_are_refused() {
        with_broker(|directory, socket| {
            for number in 0..1000 {
                std::fs::write(directory.join(format!("{number}")), "").unwrap();
            }
            let Reply::Entries { entries, more } = ask(socket, &encoded(Request::List(b"/")))
            else {
                panic!("no entries");
            };
            let more = more.unwrap();
            assert!(entries.len() < 1000);
            let other = ask(socket, &encoded(Request::Continue(more + 1)));
            assert_eq!(errno(other), Some(Errno::BADF));
            let forgotten = ask(socket, &encoded(Request::Forget(more)));
            assert!(matches!(forgotten, Reply::Done));
            let late = ask(socket, &encoded(Request::Continue(more)));
            assert_eq!(errno(late), Some(Errno::BADF));
        });
    }

    #[test]
    fn listings_are_bounded() {
        with_broker(|directory, socket| {
            for number in 0..1000 {
                std::fs::write(directory.join(format!("{number}")), "").unwrap();
            }
            let list = encoded(Request::List(b"/"));
            let mut numbers = Vec::new();
            for _ in 0..LISTINGS {
                match ask(socket, &list) {
                    Reply::Entries {
                        more: Some(number), ..
                    } => numbers.push(number),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(errno(ask(socket, &list)), Some(Errno::MFILE));
            ask(socket, &encoded(Request::Forget(numbers[0])));
            assert_eq!(errno(ask(socket, &list)), None);
        });
    }

    #[test]
    fn a_removal_in_progress_can_be_cancelled() {
        with_broker(|directory, socket| {
            std::fs::create_dir_all(directory.join("d/e")).unwrap();
            // Either the cancellation arrives before the end of the removal, or after it.
            socket::send(socket, &encoded(Request::RemoveTree(b"d")), &[]).unwrap();
            socket::send(socket, &encoded(Request::Cancel), &[]).unwrap();
            match errno(answer(socket)) {
                Some(Errno::CANCELED) => assert!(directory.join("d").exists()),
                None => assert!(!directory.join("d").exists()),
                other => panic!("{other:?}"),
            }
            let facts = ask(socket, &encoded(Request::Stat(b"/")));
            assert!(matches!(facts, Reply::Facts(_)));
        });
    }
}
