//! A root with every kind of path that leads out of it, and a directory outside that must not change.

use std::fs;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridhaul_interop::raw::{
    Control, DataListener, Reply, connect_data, read_channel, send_blocks,
};

use crate::fixture::{Fixture, give_to_server};

/// The file outside, with a unique name, content and size.
pub(crate) const SECRET_NAME: &str = "unmistakable-name";
const SECRET: &str = "the secret of another account";
const SECRET_SIZE: usize = 31_337;

/// Names that would resolve to a file outside without protection.
pub(crate) const FILES: [&str; 7] = [
    "../outside/unmistakable-name",
    "/../outside/unmistakable-name",
    "../../../../../../../../../etc/passwd",
    "inside/../../outside/unmistakable-name",
    "/inside/../../../outside/unmistakable-name",
    "relative-link/unmistakable-name",
    "absolute-link/unmistakable-name",
];

/// Links to the file outside.
pub(crate) const LINKS: [&str; 2] = ["file-link", "absolute-file-link"];

/// Names that would resolve to a directory outside.
pub(crate) const DIRECTORIES: [&str; 6] = [
    "../outside",
    "/../../outside",
    "inside/../../outside",
    "relative-link",
    "absolute-link",
    "relative-link/folder",
];

/// Names that would resolve to a new file outside.
pub(crate) const NEW: [&str; 4] = [
    "../outside/new",
    "/inside/../../outside/new",
    "relative-link/new",
    "absolute-link/new",
];

/// A served root with paths that lead out of it.
pub(crate) struct Jail {
    pub(crate) fixture: Fixture,
    pub(crate) outside: PathBuf,
    before: Vec<Entry>,
}

impl Jail {
    pub(crate) fn new() -> Self {
        let fixture = Fixture::ours(&[]);
        let outside = fixture.directory().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::create_dir(outside.join("folder")).unwrap();
        let mut secret = SECRET.as_bytes().to_vec();
        secret.resize(SECRET_SIZE, b'!');
        fs::write(outside.join(SECRET_NAME), secret).unwrap();
        for path in [
            outside.clone(),
            outside.join("folder"),
            outside.join(SECRET_NAME),
        ] {
            give_to_server(&path);
            fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        fixture.folder("inside");
        let root = fixture.root();
        symlink("../outside", root.join("relative-link")).unwrap();
        symlink(&outside, root.join("absolute-link")).unwrap();
        symlink(format!("../outside/{SECRET_NAME}"), root.join("file-link")).unwrap();
        symlink(outside.join(SECRET_NAME), root.join("absolute-file-link")).unwrap();
        symlink("../outside/new", root.join("dangling-link")).unwrap();
        let before = entries(&outside);
        Self {
            fixture,
            outside,
            before,
        }
    }

    /// Checks that no file outside has changed.
    #[track_caller]
    pub(crate) fn intact(&self, command: &str) {
        assert_eq!(
            entries(&self.outside),
            self.before,
            "{command} reached out of the root"
        );
    }

    /// Sends commands, separated by ` ; `, with each of these names in place of
    /// `{}`. Returns the last reply for each name.
    #[track_caller]
    pub(crate) fn control(&self, commands: &str, names: &[&str]) -> Vec<Reply> {
        let mut last = Vec::new();
        for name in names {
            let mut control = self.fixture.session();
            let lines = commands.replace("{}", name);
            let mut replies: Vec<Reply> = Vec::new();
            for line in lines.split(" ; ") {
                replies.push(control.command(line).unwrap());
                self.check_leak(&lines, replies.last().unwrap().text().as_bytes());
            }
            self.intact(&lines);
            self.fixture.session_works(&mut control);
            last.extend(replies.pop());
        }
        last
    }

    /// As [`Jail::control`], and checks that the last command is refused.
    #[track_caller]
    pub(crate) fn refused(&self, commands: &str, names: &[&str]) {
        for (reply, name) in self.control(commands, names).iter().zip(names) {
            assert!(reply.code >= 400, "{commands} with {name}: {reply}");
        }
    }

    /// Sends a command with which the server sends data, in stream mode and in MODE E, and checks the data.
    #[track_caller]
    pub(crate) fn receives(&self, command: &str, names: &[&str]) {
        for name in names {
            let line = command.replace("{}", name);
            let mut control = self.fixture.session();
            for (mode, read) in [("MODE S", read_stream as Reader), ("MODE E", read_blocks)] {
                control.must(mode, 200).unwrap();
                let listener = control.listen().unwrap();
                let (replies, data) = receive(&mut control, &listener, &line, read);
                self.check_leak(&line, replies.as_bytes());
                self.check_leak(&line, &data);
                self.intact(&line);
            }
            self.fixture.session_works(&mut control);
        }
    }

    /// Sends a command with which the server receives data, in stream mode and in MODE E, and checks that it is refused.
    #[track_caller]
    pub(crate) fn sends(&self, command: &str, names: &[&str]) {
        for name in names {
            let line = command.replace("{}", name);
            let mut control = self.fixture.session();
            let channel = connect_data(control.passive().unwrap()).unwrap();
            control.send_line(&line).unwrap();
            drop(channel);
            let refused = control.dialogue().unwrap().last;
            assert!(refused.code >= 400, "{line}: {refused}");
            self.intact(&line);
            control.must("MODE E", 200).unwrap();
            let stored = send_blocks(&mut control, &line, &[(0, b"forged")], 2);
            assert!(stored.is_err(), "{line}: {stored:?}");
            self.intact(&line);
            self.fixture.session_works(&mut control);
        }
    }

    #[track_caller]
    fn check_leak(&self, command: &str, output: &[u8]) {
        let output = String::from_utf8_lossy(output);
        assert!(
            !output.contains(SECRET),
            "{command} leaked the content: {output}"
        );
        assert!(
            !output.contains(&SECRET_SIZE.to_string()),
            "{command} leaked the size: {output}"
        );
        assert!(
            !output.contains("root:x:0:0"),
            "{command} leaked /etc/passwd: {output}"
        );
        // A reply may repeat the argument of the command; a listing that leaks the name has it at the end of a line.
        // The target of a link is no secret.
        let named = output
            .lines()
            .any(|line| line.ends_with(SECRET_NAME) && !line.contains(" -> "));
        let asked = command.ends_with(SECRET_NAME);
        assert!(asked || !named, "{command} leaked the name: {output}");
    }
}

/// The attributes of a file that must not change.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    path: PathBuf,
    content: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
}

fn entries(directory: &Path) -> Vec<Entry> {
    let children = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<Entry> = children.chain([directory.to_owned()]).map(entry).collect();
    found.sort();
    found
}

fn entry(path: PathBuf) -> Entry {
    let metadata = fs::symlink_metadata(&path).unwrap();
    Entry {
        content: if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        },
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        path,
    }
}

/// Reads all data of a channel.
type Reader = fn(&mut TcpStream) -> io::Result<Vec<u8>>;

fn read_stream(channel: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    channel.read_to_end(&mut data).map(|_| data)
}

fn read_blocks(channel: &mut TcpStream) -> io::Result<Vec<u8>> {
    let blocks = read_channel(channel)?;
    Ok(blocks.into_iter().flat_map(|block| block.payload).collect())
}

/// The replies of a command that may send data, and the data.
fn receive(
    control: &mut Control,
    listener: &DataListener,
    line: &str,
    read: Reader,
) -> (String, Vec<u8>) {
    let first = control.command(line).unwrap();
    if !first.is_preliminary() {
        return (first.text(), Vec::new());
    }
    // A command that fails after its 150 may never connect.
    let channel = listener.accept_within(Duration::from_secs(5)).unwrap();
    // A channel that the server resets has no data either.
    let data = channel
        .and_then(|mut channel| read(&mut channel).ok())
        .unwrap_or_default();
    (format!("{first}\n{}", control.dialogue().unwrap()), data)
}
