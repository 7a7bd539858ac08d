//! Requests of a server that an attacker controls.
//!
//! In operation the kernel confines a broker to its root. It is not confined here, so that its own checks are tested: it must
//! not open, list or change files outside of the root, to which the root has links.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use gridhaul_storage::{PosixOptions, PosixStorage};
use rustix::fs::FileType;
use tempfile::TempDir;

use super::Input;
use crate::broker::Handler;
use crate::facts::Time;
use crate::messages::{REPLY_BYTES, Reply, Request};
use crate::socket::{self, Received};

const SECRET: &[u8] = b"not readable from the root";

const PATHS: &[&[u8]] = &[
    b"a",
    b"d",
    b"d/b",
    b"new",
    b"/",
    b".",
    b"..",
    b"",
    b"../outside/secret",
    b"/d/../../outside/secret",
    b"link",
    b"out",
    b"out/secret",
    b"out/new",
    b"absolute/secret",
    b"a\0b",
    b"new/\xff",
    b"fifo",
];

/// The root of a broker, and a directory beside it.
struct Place {
    directory: TempDir,
}

/// Makes requests, most of them valid, and checks that their effects are within the root.
pub fn requests(input: &[u8]) {
    let mut input = Input(input);
    let place = Place::new();
    let options = PosixOptions {
        read_only: input.byte() > 220,
        ..PosixOptions::default()
    };
    let storage = PosixStorage::open(&place.path("root"), options).expect("it is there");
    let handler = Handler::new(storage);
    let before = place.outside();
    while !input.is_empty() {
        let (ours, theirs) = socket::pair().expect("a pair");
        thread::scope(|scope| {
            scope.spawn(|| {
                let theirs = theirs;
                handler.serve(&theirs);
            });
            let ours = ours;
            let mut buffer = vec![0; REPLY_BYTES];
            for _ in 0..input.byte() % 32 {
                let message = request(&mut input, &place.path("root"));
                socket::send(&ours, &message, &[]).expect("the broker reads");
                if matches!(postcard::from_bytes(&message), Ok(Request::Cancel)) {
                    continue;
                }
                let mut descriptors = Vec::new();
                let received = socket::receive(&ours, &mut buffer, &mut descriptors);
                let Received::Message(bytes) = received.expect("an answer") else {
                    panic!("the broker is gone");
                };
                let reply: Reply = postcard::from_bytes(&buffer[..bytes]).expect("an answer");
                assert_eq!(matches!(reply, Reply::Opened), !descriptors.is_empty());
                for descriptor in descriptors {
                    let stat = rustix::fs::fstat(&descriptor).expect("open");
                    assert_ne!(stat.st_ino, before.secret_inode, "a file outside is open");
                    let kind = FileType::from_raw_mode(stat.st_mode);
                    assert_eq!(kind, FileType::RegularFile);
                }
            }
        });
    }
    assert_eq!(place.outside(), before);
}

fn request(input: &mut Input<'_>, root: &Path) -> Vec<u8> {
    let kind = input.byte();
    if kind >= 240 {
        let length = usize::from(input.byte());
        // An empty message would be taken for the end.
        return [input.bytes(length), b"\0"].concat();
    }
    let own = input.bytes(usize::from(kind % 8));
    let path = match input.byte() {
        230.. => own,
        place => PATHS[usize::from(place) % PATHS.len()],
    };
    let other = input.one_of(PATHS);
    let number = u32::from(input.byte());
    let time = Time::new(std::time::UNIX_EPOCH);
    let request = match kind % 21 {
        0 => Request::OpenRead {
            path,
            direct: number > 200,
        },
        1 => Request::OpenWrite {
            path,
            truncate: number > 100,
            create: number > 50,
            direct: number > 200,
        },
        2 => Request::Stat(path),
        3 => Request::List(path),
        4 => Request::Continue(number),
        5 => Request::Forget(number),
        6 => Request::MakeDirectory(path),
        7 => Request::RemoveFile(path),
        8 => Request::RemoveDirectory(path),
        9 => Request::RemoveTree(path),
        10 => Request::Cancel,
        11 => Request::Rename {
            from: path,
            to: other,
        },
        12 => Request::SetMode {
            path,
            mode: number * 257,
        },
        13 => Request::SetGroup {
            path,
            group: Some(number),
        },
        14 => Request::SetModified { path, time },
        15 => Request::Symlink {
            target: path,
            link: other,
        },
        16 => Request::Truncate {
            path,
            length: number.into(),
        },
        17 => Request::ChecksumAttribute(path),
        18 => Request::SetChecksumAttribute {
            path,
            value: Some(other),
        },
        19 => Request::OpenUpload {
            path,
            create: number > 100,
            private: number > 150,
            direct: number > 200,
        },
        _ => {
            let found = fs::metadata(root.join("a")).ok();
            let identity = found.map_or((0, 0), |found| (found.dev(), found.ino()));
            Request::CompleteUpload {
                from: path,
                to: other,
                device: identity.0,
                inode: identity.1,
                durable: number > 200,
            }
        }
    };
    postcard::to_stdvec(&request).expect("a request")
}

/// The state that must not change.
#[derive(Debug, PartialEq, Eq)]
struct Outside {
    names: Vec<PathBuf>,
    secret: Vec<u8>,
    secret_inode: u64,
    modes: [u32; 2],
    owners: [(u32, u32); 2],
    modified: [(i64, i64); 2],
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Self { directory };
        let root = place.path("root");
        fs::create_dir(&root).expect("made");
        fs::create_dir(place.path("outside")).expect("made");
        fs::write(place.path("outside/secret"), SECRET).expect("written");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("set");
        fs::write(root.join("a"), b"a file").expect("written");
        fs::create_dir(root.join("d")).expect("made");
        fs::write(root.join("d/b"), b"").expect("written");
        symlink("../outside/secret", root.join("link")).expect("made");
        symlink("../outside", root.join("out")).expect("made");
        symlink(place.path("outside"), root.join("absolute")).expect("made");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), FileType::Fifo, mode, 0)
            .expect("made");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn outside(&self) -> Outside {
        let paths = [self.path("outside"), self.path("outside/secret")];
        let of = |path: &Path| fs::symlink_metadata(path).expect("it is there");
        let entries = fs::read_dir(&paths[0]).expect("listed");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        names.sort();
        Outside {
            names,
            secret: fs::read(&paths[1]).expect("read"),
            secret_inode: of(&paths[1]).ino(),
            modes: [of(&paths[0]).mode(), of(&paths[1]).mode()],
            owners: paths
                .each_ref()
                .map(|path| (of(path).uid(), of(path).gid())),
            modified: paths
                .each_ref()
                .map(|path| (of(path).mtime(), of(path).mtime_nsec())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::tests::over_arbitrary_bytes;

    #[test]
    fn no_request_reaches_beyond_the_root() {
        over_arbitrary_bytes(300, 400, requests);
    }
}
