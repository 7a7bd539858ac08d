//! Dialogues recorded from globus-gridftp-server 13.24, replayed against it and against ours: the
//! replies and the shape of the blocks.

use gridhaul_interop::Kind;
use gridhaul_interop::raw::{
    Block, Control, Dialogue, Received, connect_data, get_blocks, get_stream, put_blocks,
    put_stream, receive_blocks, send_blocks, stream_transfer, write_block,
};

use crate::fixture::{Fixture, pattern, wait_until};

/// The default block size of the real server.
const BLOCK: u64 = 262_144;

/// Each dialogue is a test against the real server and a test against ours.
macro_rules! replayed {
    ($($dialogue:ident),* $(,)?) => {
        mod theirs {
            $(#[test] fn $dialogue() { super::$dialogue(super::Kind::Globus); })*
        }
        mod ours {
            $(#[test] fn $dialogue() { super::$dialogue(super::Kind::Gridhaul); })*
        }
    };
}

replayed! {
    login_and_stream_get,
    stream_put,
    four_channels_get,
    four_channels_put,
    delayed_passive_put,
    channels_are_reused,
    a_new_port_closes_the_old_channel,
    range_markers_cover_received_data_once,
    restart_ranges_skip_existing_data,
    partial_retrieve_counts_from_zero,
    listing_in_blocks,
    empty_file_over_four_channels,
    restart_writes_only_the_gap,
    adjusted_store_writes_in_the_middle,
    append_writes_at_the_end,
    stream_restarts_at_an_offset,
}

fn login_and_stream_get(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let content = pattern(1_000_000);
    fixture.file("r1m.bin", &content);
    let mut control = Control::greeted(fixture.address()).unwrap();
    expect_reply(
        &mut control,
        "USER anonymous",
        "331 Password required for anonymous.",
    );
    expect_reply(
        &mut control,
        "PASS globus@",
        "230 User anonymous logged in.",
    );
    assert_eq!(control.command("SITE HELP").unwrap().code, 214);
    let features = control.must("FEAT", 211).unwrap();
    for feature in [
        " PARALLEL",
        " SIZE",
        " ERET",
        " ESTO",
        " SPAS",
        " REST STREAM",
        " MDTM",
    ] {
        assert!(
            features.lines.iter().any(|line| line == feature),
            "{feature}: {features}"
        );
    }
    let facts = features
        .lines
        .iter()
        .find_map(|line| line.strip_prefix(" MLST "));
    let facts: Vec<&str> = facts.expect("MLST").split_terminator(';').collect();
    for fact in [
        "Type*",
        "Size*",
        "Modify*",
        "Perm*",
        "UNIX.mode*",
        "Unique*",
    ] {
        assert!(facts.contains(&fact), "{fact}: {features}");
    }
    let client = "SITE CLIENTINFO scheme=ftp;appname=\"raw\";appver=\"1\";";
    expect_reply(&mut control, client, "250 OK.");
    expect_reply(&mut control, "TYPE I", "200 Type set to I.");
    let channel = connect_data(control.passive().unwrap()).unwrap();
    let retrieve = format!("RETR {}", fixture.path("r1m.bin"));
    expect_reply(&mut control, &retrieve, "150 Beginning transfer.");
    let received = std::io::read_to_string(channel);
    // The content is binary; only the end of the connection matters here.
    assert!(received.is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidData));
    assert_eq!(control.reply().unwrap().text(), "226 Transfer Complete.");
    assert_eq!(
        get_stream(&mut control, &fixture.path("r1m.bin")).unwrap(),
        content
    );
    expect_reply(&mut control, "QUIT", "221 Goodbye.");
    assert_eq!(control.until_closed().unwrap(), []);
}

fn stream_put(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let mut control = fixture.session();
    let content = pattern(1_000_000);
    expect_reply(&mut control, "ALLO 1000000", "200 ALLO command successful.");
    put_stream(&mut control, &fixture.path("up"), &content).unwrap();
    assert_eq!(fixture.content("up"), content);
    // No marker in stream mode: a client would send an invalid REST for it.
    let store = format!("STOR {}", fixture.path("up"));
    let dialogue = stream_transfer(&mut control, &store, |_| Ok(())).unwrap();
    assert_eq!(dialogue.codes(), [150, 226]);
    assert_eq!(fixture.content("up"), b"", "an existing file is truncated");
}

fn four_channels_get(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let content = pattern(1_000_000);
    fixture.file("r1m.bin", &content);
    let mut control = fixture.session();
    let received = get_blocks(&mut control, &fixture.path("r1m.bin"), 4).unwrap();
    assert_eq!(received.file().unwrap(), content);
    assert_eq!(received.dialogue.codes(), [150, 226]);
    assert_ends(&received, 4);
}

fn four_channels_put(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let content = pattern(1_000_000);
    let mut control = fixture.session();
    let dialogue = put_blocks(&mut control, &fixture.path("up"), &content, 4).unwrap();
    assert_eq!(fixture.content("up"), content);
    assert_eq!(dialogue.preliminary[0].text(), "150 Beginning transfer.");
    assert_eq!(markers_merged(&dialogue), [(0, 1_000_000)]);
    assert_eq!(dialogue.last.text(), "226 Transfer Complete.");
    assert_performance_markers(&dialogue, 1_000_000);
}

fn delayed_passive_put(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let mut control = fixture.session();
    expect_reply(
        &mut control,
        "OPTS PASV AllowDelayed=1;",
        "200 OPTS Command Successful.",
    );
    expect_reply(&mut control, "PASV", "200 Passive delayed.");
    let address = control
        .must(&format!("STOR {}", fixture.path("up")), 127)
        .unwrap();
    let list = address
        .tail()
        .strip_prefix("Entering Passive Mode (")
        .unwrap();
    let numbers: Vec<u16> = list
        .trim_end_matches(')')
        .split(',')
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(&numbers[..4], [127, 0, 0, 1]);
    let port = numbers[4] * 256 + numbers[5];
    let mut channel = connect_data(([127, 0, 0, 1], port).into()).unwrap();
    assert_eq!(control.reply().unwrap().text(), "150 Beginning transfer.");
    std::io::Write::write_all(&mut channel, b"delayed").unwrap();
    drop(channel);
    assert_eq!(control.reply().unwrap().text(), "226 Transfer Complete.");
    assert_eq!(fixture.content("up"), b"delayed");
}

fn channels_are_reused(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    let retrieve = format!("RETR {}", fixture.path("hello.txt"));
    expect_reply(&mut control, &retrieve, "150 Beginning transfer.");
    let mut channel = listener.accept().unwrap();
    let reused = "125 Beginning transfer; reusing existing data connection.";
    let list = format!("MLSD {}", fixture.path(""));
    for (round, next) in [&retrieve, &list, &retrieve].into_iter().enumerate() {
        let blocks = gridhaul_interop::raw::read_channel(&mut channel).unwrap();
        assert_eq!(
            blocks.last().unwrap().block,
            Block::end_of_file(1),
            "round {round}"
        );
        assert_eq!(control.reply().unwrap().text(), "226 Transfer Complete.");
        expect_reply(&mut control, next, reused);
    }
}

fn a_new_port_closes_the_old_channel(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    let retrieve = format!("RETR {}", fixture.path("hello.txt"));
    expect_reply(&mut control, &retrieve, "150 Beginning transfer.");
    let mut channel = listener.accept().unwrap();
    gridhaul_interop::raw::read_channel(&mut channel).unwrap();
    assert_eq!(control.reply().unwrap().code, 226);
    let second = control.listen().unwrap();
    assert_eq!(
        gridhaul_interop::raw::read_block(&mut channel).unwrap(),
        None
    );
    let received = receive_blocks(&mut control, &second, &retrieve, 1).unwrap();
    assert_eq!(received.file().unwrap(), fixture.content("hello.txt"));
}

fn range_markers_cover_received_data_once(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    expect_reply(&mut control, "TREV PERF 1", "200 Command Successful.");
    expect_reply(&mut control, "TREV RESTART 1", "200 Command Successful.");
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control
        .must(&format!("STOR {}", fixture.path("up")), 150)
        .unwrap();
    let content = pattern(10_000);
    write_block(&mut channel, 0, &content[..1000]).unwrap();
    write_block(&mut channel, 2000, &content[2000..3000]).unwrap();
    let mut dialogue = Vec::new();
    wait_until("a 111 marker", || {
        dialogue.push(control.reply().unwrap());
        dialogue.last().unwrap().code == 111
    });
    assert_eq!(
        dialogue.last().unwrap().text(),
        "111 Range Marker 0-1000,2000-3000"
    );
    write_block(&mut channel, 1000, &content[1000..2000]).unwrap();
    write_block(&mut channel, 3000, &content[3000..]).unwrap();
    std::io::Write::write_all(&mut channel, &Block::end_of_file(1).bytes()).unwrap();
    let mut rest = control.dialogue().unwrap();
    assert_eq!(rest.last.code, 226);
    assert_eq!(markers_merged(&rest), [(1000, 2000), (3000, 10_000)]);
    dialogue.append(&mut rest.preliminary);
    let whole = Dialogue {
        preliminary: dialogue,
        last: rest.last,
    };
    assert_performance_markers(&whole, 10_000);
    assert_eq!(fixture.content("up"), content);
}

fn restart_ranges_skip_existing_data(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let content = pattern(1_000_000);
    fixture.file("r1m.bin", &content);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    let marker_ok = "350 Restart Marker OK. Send STORE or RETR to initiate transfer.";
    expect_reply(&mut control, "REST 0-300000,500000-600000", marker_ok);
    let retrieve = format!("RETR {}", fixture.path("r1m.bin"));
    let received = receive_blocks(&mut control, &listener, &retrieve, 1).unwrap();
    let gaps = [(300_000, 500_000), (600_000, 1_000_000)];
    assert_covers(&received, &gaps, &content);
    assert_ends(&received, 1);
    if kind == Kind::Globus {
        let blocks: Vec<Block> = received.channels[0]
            .iter()
            .map(|block| block.block)
            .collect();
        let data = [
            Block::data(200_000, 300_000),
            Block::data(BLOCK, 600_000),
            Block::data(137_856, 862_144),
            Block::end_of_file(1),
        ];
        assert_eq!(blocks, data);
    }
}

fn partial_retrieve_counts_from_zero(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let content = pattern(1_000_000);
    fixture.file("r1m.bin", &content);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    let retrieve = format!("ERET P 1000 2000 {}", fixture.path("r1m.bin"));
    let received = receive_blocks(&mut control, &listener, &retrieve, 1).unwrap();
    assert_eq!(received.channels[0][0].block, Block::data(2000, 0));
    assert_eq!(received.channels[0][1].block, Block::end_of_file(1));
    assert_eq!(received.file().unwrap(), content[1000..3000]);
}

fn listing_in_blocks(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let listener = control.listen().unwrap();
    let list = format!("MLSD {}", fixture.path(""));
    let received = receive_blocks(&mut control, &listener, &list, 1).unwrap();
    assert_ends(&received, 1);
    let listing = String::from_utf8(received.file().unwrap()).unwrap();
    let lines: Vec<&str> = listing.split_terminator("\r\n").collect();
    // The real server also lists the directory and its parent, which RFC 3659 7.5.1 permits.
    let entries = lines.iter().filter(|line| line.starts_with("Type=file;"));
    assert_eq!(entries.count(), 1, "{listing}");
    let hello = lines
        .iter()
        .find(|line| line.ends_with("; hello.txt"))
        .expect(&listing);
    assert!(hello.starts_with("Type=file;Modify=2"), "{hello}");
    assert!(hello.contains(";Size=17;"), "{hello}");
}

fn empty_file_over_four_channels(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    fixture.file("empty.bin", b"");
    let mut control = fixture.session();
    let received = get_blocks(&mut control, &fixture.path("empty.bin"), 4).unwrap();
    assert_eq!(received.dialogue.codes(), [150, 226]);
    assert_ends(&received, 4);
    assert!(
        received.channels.iter().all(|blocks| blocks.len() == 1),
        "{received:?}"
    );
}

fn restart_writes_only_the_gap(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    fixture.file("up", b"0123456789ABCDEF");
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    control.must("REST 0-10", 350).unwrap();
    let store = format!("STOR {}", fixture.path("up"));
    let dialogue = send_blocks(&mut control, &store, &[(10, b"new")], 1).unwrap();
    assert_eq!(dialogue.range_markers().unwrap(), [(10, 13)]);
    assert_eq!(fixture.content("up"), b"0123456789newDEF");
}

fn adjusted_store_writes_in_the_middle(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    fixture.file("up", b"0123456789ABCDEF");
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let store = format!("ESTO A 4 {}", fixture.path("up"));
    let dialogue = send_blocks(&mut control, &store, &[(0, b"new")], 1).unwrap();
    assert_eq!(dialogue.range_markers().unwrap(), [(0, 3)]);
    assert_eq!(fixture.content("up"), b"0123new789ABCDEF");
}

fn append_writes_at_the_end(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    fixture.file("up", b"0123456789ABCDEF");
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let append = format!("APPE {}", fixture.path("up"));
    let dialogue = send_blocks(&mut control, &append, &[(0, b"new")], 1).unwrap();
    assert_eq!(dialogue.range_markers().unwrap(), [(0, 3)]);
    assert_eq!(fixture.content("up"), b"0123456789ABCDEFnew");
}

fn stream_restarts_at_an_offset(kind: Kind) {
    let fixture = Fixture::start(kind, &[]);
    fixture.file("up", b"0123456789ABCDEF");
    let mut control = fixture.session();
    control.must("REST 5", 350).unwrap();
    assert_eq!(
        get_stream(&mut control, &fixture.path("up")).unwrap(),
        b"56789ABCDEF"
    );
    control.must("REST 5", 350).unwrap();
    put_stream(&mut control, &fixture.path("up"), b"new").unwrap();
    assert_eq!(fixture.content("up"), b"01234new89ABCDEF");
}

#[track_caller]
fn expect_reply(control: &mut Control, line: &str, reply: &str) {
    assert_eq!(control.command(line).unwrap().text(), reply, "{line}");
}

/// One channel ends with EOF and the count of channels, all others with EOD alone.
#[track_caller]
fn assert_ends(received: &Received, channels: u64) {
    assert_eq!(received.channels.len() as u64, channels);
    let mut ends: Vec<Block> = received
        .channels
        .iter()
        .filter_map(|blocks| blocks.last())
        .map(|end| end.block)
        .collect();
    ends.sort_by_key(|end| (end.descriptor, end.offset));
    assert_eq!(ends.pop(), Some(Block::end_of_file(channels)));
    assert!(
        ends.iter().all(|end| *end == Block::end_of_data()),
        "{ends:?}"
    );
}

/// The blocks cover exactly these ranges of the file, once.
#[track_caller]
fn assert_covers(received: &Received, ranges: &[(u64, u64)], file: &[u8]) {
    let mut expected = ranges.iter().flat_map(|&(start, end)| start..end);
    for (offset, payload) in received.ranges() {
        for (position, byte) in (offset..).zip(payload) {
            assert_eq!(expected.next(), Some(position));
            assert_eq!(
                byte,
                file[usize::try_from(position).unwrap()],
                "at {position}"
            );
        }
    }
    assert_eq!(expected.next(), None, "bytes are missing");
}

/// The merged ranges of all markers, which must not overlap.
#[track_caller]
fn markers_merged(dialogue: &Dialogue) -> Vec<(u64, u64)> {
    let mut ranges = dialogue.range_markers().unwrap();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            Some(last) => {
                assert!(last.1 < start, "a range was reported twice: {dialogue}");
                merged.push((start, end));
            }
            None => merged.push((start, end)),
        }
    }
    merged
}

/// The 112 markers have exactly the form that clients parse, and end with all bytes.
#[track_caller]
fn assert_performance_markers(dialogue: &Dialogue, bytes: u64) {
    let mut last = None;
    for marker in dialogue
        .preliminary
        .iter()
        .filter(|reply| reply.code == 112)
    {
        let lines: Vec<&str> = marker.lines.iter().map(String::as_str).collect();
        let [
            "112-Perf Marker",
            time,
            " Stripe Index: 0",
            sum,
            " Total Stripe Count: 1",
            "112 End.",
        ] = lines[..]
        else {
            panic!("{marker}");
        };
        let time = time
            .strip_prefix(" Timestamp:  ")
            .expect("two spaces after the colon");
        let (seconds, tenth) = time.split_once('.').expect("one decimal");
        assert!(
            seconds
                .parse::<u64>()
                .is_ok_and(|seconds| seconds > 1_700_000_000),
            "{time}"
        );
        assert!(tenth.len() == 1 && tenth.parse::<u8>().is_ok(), "{time}");
        let sum = sum.strip_prefix(" Stripe Bytes Transferred: ").expect(sum);
        let sum = sum.parse::<u64>().unwrap();
        assert!(
            last.is_none_or(|last| last <= sum),
            "the count of bytes went back: {dialogue}"
        );
        last = Some(sum);
    }
    assert_eq!(last, Some(bytes), "{dialogue}");
}
