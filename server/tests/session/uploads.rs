//! Uploads under temporary names: the final name has the old content until the new one is complete.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use gridhaul_server::config::{AtomicRoot, Settings, SyncFiles};
use gridhaul_transfer::SyncPolicy;

use crate::client::{Client, send_block, send_end};
use crate::served::Served;

const PART: &str = ".file.gridhaul-part";
const BLOCKS: &str = ".file.gridhaul-blocks";

fn atomic() -> Served {
    Served::with(|settings| settings.atomic_uploads = Some(vec![AtomicRoot::Any]))
}

fn names(served: &Served) -> Vec<String> {
    let entries = fs::read_dir(served.path("")).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Waits until the file has these bytes.
fn wait_for(served: &Served, name: &str, content: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read(served.path(name)).ok().as_deref() != Some(content) {
        assert!(Instant::now() < deadline, "{name}: {:?}", names(served));
        std::thread::yield_now();
    }
}

/// Begins an upload in stream mode, of which `content` arrives.
fn begin(served: &Served, line: &str, content: &[u8]) -> (Client, TcpStream) {
    let mut client = served.anonymous();
    let mut data = client.passive();
    client.expect(line, 150);
    data.write_all(content).expect("sent");
    (client, data)
}

/// The same, and aborts it.
fn interrupt(served: &Served, content: &[u8]) {
    let (mut client, _data) = begin(served, "STOR file", content);
    wait_for(served, PART, content);
    client.expect("ABOR", 426);
}

#[test]
fn the_final_name_has_the_old_content_until_the_upload_is_complete() {
    let served = atomic();
    served.write("file", "old");
    let (mut client, data) = begin(&served, "STOR file", b"new content");
    wait_for(&served, PART, b"new content");
    assert_eq!(served.read("file"), b"old");
    drop(data);
    client.expect_reply(226);
    assert_eq!(served.read("file"), b"new content");
    assert_eq!(names(&served), ["file"]);
}

#[test]
fn a_name_without_a_file_appears_with_the_whole_content() {
    let served = atomic();
    let (mut client, data) = begin(&served, "STOR file", b"content");
    wait_for(&served, PART, b"content");
    let mut other = served.anonymous();
    for line in ["MLST file", "MDTM file", "CKSM MD5 0 -1 file"] {
        other.expect(line, 550);
    }
    let listing = String::from_utf8(other.get("NLST")).expect("UTF-8");
    assert_eq!(listing, format!("{PART}\r\n"));
    drop(data);
    client.expect_reply(226);
    assert_eq!(names(&served), ["file"]);
    client.put("STOU", b"named by the server");
    client.put("STOR empty", b"");
    let names = names(&served);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("gridhaul")),
        "{names:?}"
    );
}

#[test]
fn an_interrupted_stream_restarts_at_the_size() {
    let served = atomic();
    served.write("other", "");
    interrupt(&served, b"0123456789");
    assert_eq!(names(&served), [PART, "other"]);
    let mut client = served.anonymous();
    assert_eq!(client.expect("SIZE file", 213), "213 10\r\n");
    client.expect("REST 10", 350);
    client.put("STOR file", b"abc");
    assert_eq!(served.read("file"), b"0123456789abc");
    assert_eq!(names(&served), ["file", "other"]);
    assert_eq!(client.expect("SIZE file", 213), "213 13\r\n");
}

#[test]
fn an_append_continues_an_interrupted_stream_and_otherwise_the_file() {
    let served = atomic();
    interrupt(&served, b"0123");
    let mut client = served.anonymous();
    client.put("APPE file", b"45");
    assert_eq!(served.read("file"), b"012345");
    client.put("APPE file", b"67");
    assert_eq!(served.read("file"), b"01234567");
    client.expect("DELE file", 250);
    interrupt(&served, b"01");
    client.put("ESTO A 2 file", b"23");
    assert_eq!(served.read("file"), b"0123");
    client.put("ESTO A 1 file", b"x");
    assert_eq!(served.read("file"), b"0x23");
    assert_eq!(names(&served), ["file"]);
}

#[test]
fn a_restart_of_a_complete_file_does_not_change_it_until_the_end() {
    let served = atomic();
    served.write("file", "0123456789");
    let mut client = served.anonymous();
    client.expect("REST 4", 350);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    data.write_all(b"xyz").expect("sent");
    wait_for(&served, PART, b"0123xyz");
    assert_eq!(served.read("file"), b"0123456789");
    drop(data);
    client.expect_reply(226);
    assert_eq!(served.read("file"), b"0123xyz");
}

#[test]
fn a_restart_behind_the_received_bytes_is_refused() {
    let served = atomic();
    interrupt(&served, b"0123");
    let mut client = served.anonymous();
    let _data = client.passive();
    client.expect("REST 5", 350);
    let text = client.expect("STOR file", 554);
    assert!(text.contains("which has 4 bytes"), "{text}");
    assert_eq!(served.read(PART), b"0123");
}

#[test]
fn interrupted_blocks_restart_by_their_ranges_only() {
    let served = atomic();
    served.write("file", "old");
    let mut client = served.anonymous();
    client.expect("MODE E", 200);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    client.expect_reply(112);
    send_block(&mut data, 0, b"01");
    send_block(&mut data, 6, b"67");
    wait_for(&served, BLOCKS, b"01\x00\x00\x00\x0067");
    client.send("ABOR");
    let mut markers = Vec::new();
    loop {
        let reply = client.reply();
        match reply.code() {
            111 => markers.push(crate::client::text(&reply)),
            112 => {}
            code => break assert_eq!(code, 426),
        }
    }
    assert_eq!(markers, ["111 Range Marker 0-2,6-8\r\n"]);
    client.expect_reply(226);
    assert_eq!(served.read("file"), b"old");
    client.expect("DELE file", 250);
    assert!(names(&served).is_empty(), "both are removed");
    // The end of blocks with gaps is no offset for a restart.
    served.write(BLOCKS, b"01\x00\x00\x00\x0067");
    client.expect("SIZE file", 550);
    let mut data = client.passive();
    client.expect("REST 0-2,6-8", 350);
    client.expect("STOR file", 150);
    client.expect_reply(112);
    send_block(&mut data, 2, b"2345");
    send_end(&mut data);
    for code in [112, 111, 226] {
        client.expect_reply(code);
    }
    assert_eq!(served.read("file"), b"01234567");
    assert_eq!(names(&served), ["file"]);
}

#[test]
fn a_wrong_checksum_leaves_the_old_file_and_no_other() {
    let served = atomic();
    served.write("file", "old");
    let mut client = served.anonymous();
    client.expect("SCKS MD5 d41d8cd98f00b204e9800998ecf8427e", 200);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    data.write_all(b"not empty").expect("sent");
    drop(data);
    let text = client.expect_reply(550);
    assert!(text.contains("INCORRECT_CHECKSUM"), "{text}");
    assert_eq!(served.read("file"), b"old");
    assert_eq!(names(&served), ["file"]);
    client.expect("SCKS MD5 d41d8cd98f00b204e9800998ecf8427e", 200);
    client.put("STOR file", b"");
    assert_eq!(served.read("file"), b"");
}

#[test]
fn demands_are_met_before_the_file_appears() {
    let served = atomic();
    let mut client = served.anonymous();
    client.expect(
        "SITE STORATTR modify=20200101000000;checksum.md5=9a0364b9e99bb480dd25e1f0284c8555;",
        250,
    );
    client.put("STOR file", b"content");
    let facts = fs::metadata(served.path("file")).expect("there");
    assert_eq!(facts.mtime(), 1_577_836_800);
    // A restarted upload has the checksum of its whole content.
    client.expect("DELE file", 250);
    interrupt(&served, b"cont");
    client.expect("SCKS MD5 9a0364b9e99bb480dd25e1f0284c8555", 200);
    client.expect("REST 4", 350);
    client.put("STOR file", b"ent");
    assert_eq!(served.read("file"), b"content");
}

#[test]
fn fewer_bytes_than_announced_do_not_appear() {
    let served = atomic();
    served.write("file", "old");
    let mut client = served.anonymous();
    client.expect("ALLO 10", 200);
    let mut data = client.passive();
    client.expect("STOR file", 150);
    data.write_all(b"01234").expect("sent");
    drop(data);
    client.expect_reply(426);
    assert_eq!(served.read("file"), b"old");
    assert_eq!(served.read(PART), b"01234");
}

#[test]
fn a_later_upload_of_the_same_name_replaces_the_running_one() {
    let served = atomic();
    let (mut first, _data) = begin(&served, "STOR file", b"first");
    wait_for(&served, PART, b"first");
    let mut second = served.anonymous();
    second.put("STOR file", b"the second");
    let text = first.expect_reply(426);
    assert!(text.contains("another upload of the same file"), "{text}");
    assert_eq!(served.read("file"), b"the second");
    assert_eq!(names(&served), ["file"]);
}

#[test]
fn a_restart_takes_over_from_a_session_whose_client_is_gone() {
    let served = atomic();
    let (_gone, _data) = begin(&served, "STOR file", b"01234");
    wait_for(&served, PART, b"01234");
    let mut client = served.anonymous();
    assert_eq!(client.expect("SIZE file", 213), "213 5\r\n");
    client.expect("REST 5", 350);
    client.put("STOR file", b"56789");
    assert_eq!(served.read("file"), b"0123456789");
}

#[test]
fn an_upload_whose_file_was_removed_is_an_error() {
    let served = atomic();
    let (mut client, data) = begin(&served, "STOR file", b"content");
    wait_for(&served, PART, b"content");
    served.anonymous().expect("DELE file", 250);
    drop(data);
    client.expect_reply(550);
    assert!(names(&served).is_empty());
}

#[test]
fn the_file_keeps_its_rights_and_must_be_writable() {
    let served = atomic();
    served.write("file", "old");
    let mode = |bits| fs::set_permissions(served.path("file"), fs::Permissions::from_mode(bits));
    mode(0o600).expect("set");
    let (mut client, data) = begin(&served, "STOR file", b"secret");
    wait_for(&served, PART, b"secret");
    let bits = |name| fs::metadata(served.path(name)).expect("there").mode() & 0o7777;
    assert_eq!(bits(PART), 0o600);
    drop(data);
    client.expect_reply(226);
    assert_eq!(bits("file"), 0o600);
    if rustix::process::geteuid().is_root() {
        // Root may write to every file.
        return;
    }
    mode(0o400).expect("set");
    let _data = client.passive();
    client.expect("STOR file", 550);
}

/// `system.posix_acl_access` (linux/posix_acl_xattr.h): a named user and the mask may read, the owning group nothing.
#[test]
fn the_file_keeps_its_access_control_list() {
    const NAME: &str = "system.posix_acl_access";
    const NO_ID: u32 = u32::MAX;

    let served = atomic();
    served.write("file", "old");
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (0x01_u16, 6_u16, NO_ID),
        (0x02, 4, 54_321),
        (0x04, 0, NO_ID),
        (0x10, 4, NO_ID),
        (0x20, 0, NO_ID),
    ] {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let set = rustix::fs::setxattr(
        served.path("file"),
        NAME,
        &list,
        rustix::fs::XattrFlags::empty(),
    );
    if set == Err(rustix::io::Errno::OPNOTSUPP) {
        gridhaul_skip::skipped("this file system has no access control lists");
        return;
    }
    set.expect("set");
    let (mut client, data) = begin(&served, "STOR file", b"new");
    drop(data);
    client.expect_reply(226);
    let mut kept = [0; 1024];
    let length = rustix::fs::getxattr(served.path("file"), NAME, &mut kept[..]).expect("a list");
    assert_eq!(kept[..length], list);
    assert_eq!(fs::read(served.path("file")).expect("read"), b"new");
}

#[test]
fn names_that_are_no_files_or_reserved_are_refused() {
    let served = atomic();
    served.directory("directory");
    let mut client = served.anonymous();
    for (line, code, words) in [
        ("STOR directory", 550, "Is a directory"),
        ("STOR nowhere/file", 550, "No such file or directory"),
        (
            "STOR .x.gridhaul-part",
            553,
            "reserved for unfinished uploads",
        ),
        (
            "STOR .x.gridhaul-blocks",
            553,
            "reserved for unfinished uploads",
        ),
    ] {
        let _data = client.passive();
        let text = client.expect(line, code);
        assert!(text.contains(words), "{line}: {text}");
    }
    assert_eq!(names(&served), ["directory"]);
}

#[test]
fn links_at_both_names_are_replaced_and_not_followed() {
    let served = atomic();
    served.write("target", "target");
    symlink("target", served.path("file")).expect("made");
    symlink("target", served.path(PART)).expect("made");
    let mut client = served.anonymous();
    client.put("STOR file", b"content");
    assert_eq!(served.read("target"), b"target");
    assert_eq!(served.read("file"), b"content");
    assert_eq!(names(&served), ["file", "target"]);
}

#[test]
fn only_the_named_roots_have_temporary_names() {
    let named = Served::with(|settings| {
        let root = settings.root.clone().expect("a root");
        settings.atomic_uploads = Some(vec![AtomicRoot::Root(root)]);
    });
    let (_client, _data) = begin(&named, "STOR file", b"content");
    wait_for(&named, PART, b"content");
    let other = Served::with(|settings| {
        settings.atomic_uploads = Some(vec![AtomicRoot::Root("/other".into())]);
    });
    let (_client, _data) = begin(&other, "STOR file", b"content");
    wait_for(&other, "file", b"content");
    assert_eq!(names(&other), ["file"]);
}

#[test]
fn every_way_to_write_ends_in_the_final_name() {
    for change in [
        |settings: &mut Settings| settings.ordered_writes = Some(true),
        |settings: &mut Settings| settings.sparse_files = Some(true),
        |settings: &mut Settings| settings.sync_files = Some(SyncFiles(SyncPolicy::Data)),
    ] {
        let served = Served::with(|settings| {
            settings.atomic_uploads = Some(vec![AtomicRoot::Any]);
            change(settings);
        });
        let content = vec![7; 300_000];
        let mut client = served.anonymous();
        client.put("STOR file", &content);
        assert!(served.read("file") == content);
        client.expect("MODE E", 200);
        let mut data = client.passive();
        client.expect("STOR file", 150);
        client.expect_reply(112);
        send_block(&mut data, 4, b"4567");
        send_block(&mut data, 0, b"0123");
        send_end(&mut data);
        for code in [112, 111, 226] {
            client.expect_reply(code);
        }
        assert_eq!(served.read("file"), b"01234567");
        assert_eq!(names(&served), ["file"]);
    }
}
