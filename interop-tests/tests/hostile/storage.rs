//! Files and directories that change during a transfer, and full file systems.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridhaul_interop::raw::{
    Block, Control, Reply, connect_data, put_blocks, put_stream, read_block, stream_transfer,
    write_block,
};

use crate::fixture::{Fixture, assert_reply, give_to_server, pattern};

/// A file system of one mebibyte and twenty files, mounted until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    #[track_caller]
    fn mount(at: &Path) -> Self {
        let mut mount = Command::new("mount");
        mount
            .args([
                "-t",
                "tmpfs",
                "-o",
                "size=1m,nr_inodes=20,mode=777",
                "tmpfs",
            ])
            .arg(at);
        let output = mount.output().unwrap();
        assert!(
            output.status.success(),
            "this test mounts a file system of 1 MiB, which takes root and CAP_SYS_ADMIN: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self(at.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_stored_data_stays() {
    let fixture = Fixture::ours(&[]);
    let disk = fixture.folder("small");
    let _disk = SmallDisk::mount(&disk);
    let content = pattern(3_000_000);
    let mut control = fixture.session();
    for blocks in [false, true] {
        let refused = if blocks {
            put_blocks(&mut control, "small/up", &content, 2).unwrap_err()
        } else {
            put_stream(&mut control, "small/up", &content).unwrap_err()
        };
        let words = refused.to_string();
        assert!(words.contains("No space left on device"), "{words}");
        let arrived = fs::read(disk.join("up")).unwrap();
        let room = fs::metadata(disk.join("up")).unwrap().blocks() * 512;
        assert!(
            (1..=1 << 20).contains(&room),
            "{room} bytes are on the disk"
        );
        // A transfer in MODE E may leave holes, one in stream mode does not.
        let same = |(index, byte): (usize, &u8)| *byte == content[index] || (blocks && *byte == 0);
        assert!(
            arrived.iter().enumerate().all(same),
            "the received bytes differ from the sent ones"
        );
        fixture.session_works(&mut control);
        control.must("DELE small/up", 250).unwrap();
        put_stream(&mut control, "small/up", &content[..500_000]).unwrap();
        assert_eq!(fs::read(disk.join("up")).unwrap(), content[..500_000]);
        control.must("DELE small/up", 250).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_where_uploads_have_temporary_names() {
    let fixture = Fixture::ours(&["--atomic-uploads", "*"]);
    let disk = fixture.folder("small");
    let _disk = SmallDisk::mount(&disk);
    let content = pattern(3_000_000);
    let mut control = fixture.session();
    put_stream(&mut control, "small/up", &content[..1000]).unwrap();
    let refused = put_stream(&mut control, "small/up", &content).unwrap_err();
    let words = refused.to_string();
    assert!(words.contains("No space left on device"), "{words}");
    assert_eq!(fs::read(disk.join("up")).unwrap(), content[..1000]);
    let part = fs::read(disk.join(".up.gridhaul-part")).unwrap();
    assert!(!part.is_empty() && part == content[..part.len()]);
    fixture.session_works(&mut control);
    control.must("DELE small/up", 250).unwrap();
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

#[test]
fn a_full_disk_refuses_directories_too() {
    let fixture = Fixture::ours(&[]);
    let disk = fixture.folder("small");
    let _disk = SmallDisk::mount(&disk);
    let mut control = fixture.session();
    let replies: Vec<Reply> = (0..30)
        .map(|name| control.command(&format!("MKD small/{name}")).unwrap())
        .collect();
    assert_reply(&replies[0], &[257], &[]);
    assert_reply(&replies[29], &[552], &["No space left on device"]);
    fixture.session_works(&mut control);
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let fixture = Fixture::ours(&[]);
    for blocks in [false, true] {
        let path = fixture.large_file("large");
        let mut control = fixture.session();
        let mut channel = retrieving(&mut control, blocks);
        channel.read_exact(&mut [0; 1000]).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(2000)
            .unwrap();
        let received = 1000 + count_to_end(channel, blocks);
        assert!(
            received < 64 << 20,
            "the server sent bytes that are not in the file"
        );
        let refused = control.dialogue().unwrap().last;
        assert_reply(
            &refused,
            &[426, 450, 451, 500, 550, 551],
            &["shrank|shorter|truncated|end"],
        );
        fixture.session_works(&mut control);
    }
}

#[test]
fn a_growing_file_is_sent_with_its_old_or_new_length() {
    let fixture = Fixture::ours(&[]);
    for blocks in [false, true] {
        let path = fixture.large_file("large");
        let mut control = fixture.session();
        let channel = retrieving(&mut control, blocks);
        let mut growing = File::options().append(true).open(&path).unwrap();
        growing.write_all(&pattern(1 << 20)).unwrap();
        let received = count_to_end(channel, blocks);
        assert!(
            (64 << 20..=65 << 20).contains(&received),
            "{received} bytes"
        );
        assert_eq!(control.dialogue().unwrap().last.code, 226);
        fixture.session_works(&mut control);
    }
}

#[test]
fn a_replaced_file_is_sent_with_its_old_content() {
    let fixture = Fixture::ours(&[]);
    let content = pattern(16 << 20);
    let path = fixture.file("data", &content);
    let mut control = fixture.session();
    let mut channel = retrieving_file(&mut control, "data", false);
    let mut received = vec![0; 1000];
    channel.read_exact(&mut received).unwrap();
    fs::remove_file(&path).unwrap();
    fixture.file("data", b"other");
    channel.read_to_end(&mut received).unwrap();
    assert!(received == content, "the content of two files was mixed");
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}

/// A running RETR of `large`.
fn retrieving(control: &mut Control, blocks: bool) -> std::net::TcpStream {
    retrieving_file(control, "large", blocks)
}

fn retrieving_file(control: &mut Control, name: &str, blocks: bool) -> std::net::TcpStream {
    control
        .must(if blocks { "MODE E" } else { "MODE S" }, 200)
        .unwrap();
    let listener = control.listen().unwrap();
    control.must(&format!("RETR {name}"), 150).unwrap();
    listener.accept().unwrap()
}

/// The number of received data bytes, in MODE E without headers. The connection may end with an error.
fn count_to_end(mut channel: std::net::TcpStream, blocks: bool) -> u64 {
    if !blocks {
        let mut received = Vec::new();
        let _ = channel.read_to_end(&mut received);
        return received.len() as u64;
    }
    let mut count = 0;
    while let Ok(Some(block)) = read_block(&mut channel) {
        count += block.payload.len() as u64;
        if block.block.ends_data() {
            break;
        }
    }
    count
}

#[test]
fn an_upload_whose_file_is_removed_ends_cleanly() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let dialogue = stream_transfer(&mut control, "STOR up", |mut channel| {
        channel.write_all(b"first")?;
        fs::remove_file(fixture.root().join("up"))?;
        channel.write_all(b"second")
    });
    assert!(dialogue.is_ok_and(|dialogue| dialogue.last.code == 226));
    assert!(!fixture.root().join("up").exists());
    fixture.session_works(&mut control);
}

/// A directory with so many long names that a listing exceeds socket buffers.
fn crowded(fixture: &Fixture) -> PathBuf {
    let folder = fixture.folder("crowd");
    for index in 0..25_000 {
        File::create(folder.join(format!("{index:0>200}"))).unwrap();
    }
    folder
}

#[test]
fn a_directory_that_is_removed_during_its_listing() {
    let fixture = Fixture::ours(&[]);
    let folder = crowded(&fixture);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("MLSD crowd", 150).unwrap();
    let mut listing = vec![0; 1000];
    channel.read_exact(&mut listing).unwrap();
    fs::remove_dir_all(folder).unwrap();
    let end = channel.read_to_end(&mut listing);
    let answer = control.dialogue().unwrap().last;
    if answer.code != 226 {
        let codes = &[426, 450, 451, 500, 550];
        return assert_reply(&answer, codes, &["No such file or directory"]);
    }
    end.unwrap();
    let listing = String::from_utf8(listing).unwrap();
    assert!(listing.ends_with("\r\n"), "the last line is cut off");
    for line in listing.split_terminator("\r\n") {
        assert!(line.starts_with("Type=") && line.contains("; "), "{line}");
    }
    fixture.session_works(&mut control);
}

#[test]
fn a_client_that_disconnects_during_a_listing() {
    let fixture = Fixture::ours(&[]);
    crowded(&fixture);
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("MLSD crowd", 150).unwrap();
    channel.read_exact(&mut [0; 1000]).unwrap();
    drop(channel);
    let refused = control.dialogue().unwrap().last;
    assert_reply(&refused, &[426, 500], &["reset|Broken pipe|closed"]);
    fixture.session_works(&mut control);
}

#[test]
fn the_working_directory_is_removed() {
    let fixture = Fixture::ours(&[]);
    let folder = fixture.folder("folder");
    let mut control = fixture.session();
    control.must("CWD folder", 250).unwrap();
    fs::remove_dir(folder).unwrap();
    for command in ["MLSD", "LIST", "NLST", "RETR x", "STOR x"] {
        control.passive().unwrap();
        control.send_line(command).unwrap();
        let refused = control.dialogue().unwrap().last;
        assert_reply(&refused, &[450, 500, 550], &["No such file or directory"]);
    }
    let refused = control.command("MKD x").unwrap();
    assert_reply(&refused, &[550], &["No such file or directory"]);
    control.must("CWD /", 250).unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn missing_permission_is_reported() {
    let fixture = Fixture::ours(&[]);
    // A file of root with mode 0600, which only root can make.
    let secret = fixture.file("secret", b"secret");
    let folder = fixture.folder("folder");
    for (path, mode) in [(&secret, 0o000), (&folder, 0o500)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).unwrap();
    }
    let mut control = fixture.session();
    for command in [
        "RETR secret",
        "STOR secret",
        "STOR folder/up",
        "APPE secret",
    ] {
        control.passive().unwrap();
        control.send_line(command).unwrap();
        let refused = control.dialogue().unwrap().last;
        assert_reply(&refused, &[500, 550, 553], &["Permission denied"]);
    }
    for command in [
        "CKSM MD5 0 -1 secret",
        "MKD folder/x",
        "SITE SYMLINKFROM hello.txt",
    ] {
        let mut refused = control.command(command).unwrap();
        if refused.code == 350 {
            refused = control.command("SITE SYMLINKTO folder/x").unwrap();
        }
        assert_reply(&refused, &[500, 550], &["Permission denied"]);
    }
    give_to_server(&secret);
    give_to_server(&folder);
    fixture.session_works(&mut control);
}

#[test]
fn a_read_only_server_changes_nothing() {
    let fixture = Fixture::read_only();
    let mut control = fixture.session();
    for command in [
        "STOR hello.txt",
        "STOR up",
        "APPE hello.txt",
        "ESTO A 0 hello.txt",
    ] {
        control.passive().unwrap();
        control.send_line(command).unwrap();
        let refused = control.dialogue().unwrap().last;
        assert_reply(
            &refused,
            &[500, 532, 550, 553],
            &["Permission denied|read-only|not allowed"],
        );
    }
    for command in [
        "DELE hello.txt",
        "MKD x",
        "RMD x",
        "RNFR hello.txt",
        "MFMT 20200102030405 hello.txt",
        "SITE CHMOD 600 hello.txt",
        "SITE CHGRP 65534 hello.txt",
        "SITE UTIME 20200102030405 hello.txt",
        "SITE TRNC 0 hello.txt",
        "SITE RDEL hello.txt",
        "SITE SYMLINKFROM hello.txt",
    ] {
        let mut refused = control.command(command).unwrap();
        if refused.code == 350 {
            let second = if command.starts_with("RNFR") {
                "RNTO y"
            } else {
                "SITE SYMLINKTO y"
            };
            refused = control.command(second).unwrap();
        }
        assert_reply(
            &refused,
            &[500, 532, 550, 553],
            &["Permission denied|read-only|not allowed"],
        );
    }
    assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 1);
    fixture.session_works(&mut control);
}

#[test]
fn blocks_beyond_what_the_file_system_holds_are_an_error() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    // The file size limit of ext4 is 16 TiB with blocks of 4 KiB; other file systems store it as a sparse file.
    let _ = write_block(&mut channel, 1 << 62, b"far out");
    let _ = channel.write_all(&Block::end_of_file(1).bytes());
    let answer = control.dialogue().unwrap().last;
    if answer.code != 226 {
        assert_reply(
            &answer,
            &[426, 500, 501, 551, 552],
            &["File too large|offset|block"],
        );
    }
    fixture.session_works(&mut control);
}
