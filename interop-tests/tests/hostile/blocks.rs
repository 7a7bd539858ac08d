//! Invalid MODE E blocks.
//!
//! The server must validate every size in a header before it uses it. Data that
//! arrived before the invalid block stays in the file.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{
    Block, Control, Dialogue, connect_data, descriptor, put_blocks, write_block,
};
use gridhaul_interop::support::usage::ProcessTree;

use crate::fixture::{DATA_TIMEOUT, Fixture, STALL, assert_reply, pattern, wait_until};

/// A running STOR in MODE E, over this number of channels, into the file `up`.
fn storing(fixture: &Fixture, channels: usize) -> (Control, Vec<TcpStream>) {
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let port = control.passive().unwrap();
    let streams = (0..channels).map(|_| connect_data(port).unwrap()).collect();
    control.must("STOR up", 150).unwrap();
    (control, streams)
}

/// The replies after these blocks, which follow 1000 valid bytes; the valid bytes stay.
#[track_caller]
fn refusal_after(blocks: &[Block]) -> Dialogue {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 1);
    let content = pattern(1000);
    write_block(&mut channels[0], 0, &content).unwrap();
    for block in blocks {
        // The server may have closed the channel at the first of them.
        let _ = channels[0].write_all(&block.bytes());
    }
    let dialogue = control.dialogue().unwrap();
    assert_eq!(
        fixture.content("up").get(..1000),
        Some(&content[..]),
        "received data was lost"
    );
    put_blocks(&mut control, "up", &content, 2).unwrap();
    fixture.session_works(&mut control);
    fixture.serves();
    dialogue
}

#[test]
fn a_count_of_2_to_the_63_is_refused() {
    let refused = refusal_after(&[Block::data(1 << 63, 1000)]);
    assert_reply(
        &refused.last,
        &[426, 500, 501, 550, 551, 552],
        &["block|header", "9223372036854775808|large"],
    );
}

#[test]
fn an_offset_of_2_to_the_63_is_refused() {
    let refused = refusal_after(&[Block::data(10, 1 << 63)]);
    assert_reply(
        &refused.last,
        &[426, 500, 501, 550, 551, 552],
        &["block|header|offset", "9223372036854775808|large"],
    );
}

#[test]
fn an_end_past_2_to_the_63_is_refused() {
    let refused = refusal_after(&[Block::data(10, i64::MAX as u64 - 5)]);
    assert_reply(
        &refused.last,
        &[426, 500, 501, 550, 551, 552],
        &["block|header|offset"],
    );
}

#[test]
fn numbers_that_overflow_are_refused() {
    for block in [
        Block::data(u64::MAX, u64::MAX),
        Block::data(u64::MAX, 1),
        Block::data(1, u64::MAX),
    ] {
        let refused = refusal_after(&[block]);
        assert_reply(
            &refused.last,
            &[426, 500, 501, 550, 551, 552],
            &["block|header|offset"],
        );
    }
}

#[test]
fn a_large_count_alone_allocates_no_memory() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let server = ProcessTree::of(fixture.server.pid());
    fixture.serves();
    let before = server.peak_memory();
    let (mut control, mut channels) = storing(&fixture, 16);
    for (channel, index) in channels.iter_mut().zip(0..) {
        let block = Block::data(1 << 32, index << 32);
        channel.write_all(&block.bytes()).unwrap();
        channel.write_all(b"x").unwrap();
    }
    drop(channels);
    let refused = control.dialogue().unwrap();
    assert!(refused.last.code >= 400, "{refused}");
    assert!(
        server.peak_memory() < before + (64 << 20),
        "memory was taken for a claim"
    );
    fixture.serves();
}

#[test]
fn overlapping_blocks_are_refused_and_received_data_stays() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 1);
    let content = pattern(3000);
    write_block(&mut channels[0], 0, &content[..2000]).unwrap();
    let _ = write_block(&mut channels[0], 1000, &content[..2000]);
    let _ = channels[0].write_all(&Block::end_of_file(1).bytes());
    let refused = control.dialogue().unwrap();
    assert_reply(
        &refused.last,
        &[426, 500, 501, 550, 551],
        &["overlap|twice|already"],
    );
    assert_eq!(fixture.content("up").get(..2000), Some(&content[..2000]));
    fixture.session_works(&mut control);
}

#[test]
fn the_same_block_on_two_channels_is_refused() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 2);
    let content = pattern(2000);
    write_block(&mut channels[0], 0, &content).unwrap();
    // A refusal stops the other channel immediately, so its bytes must have arrived before.
    wait_until("the bytes are in the file", || {
        fixture.content("up") == content
    });
    let _ = write_block(&mut channels[1], 0, &content);
    let refused = control.dialogue().unwrap();
    assert_reply(
        &refused.last,
        &[426, 500, 501, 550, 551],
        &["overlap|twice|already"],
    );
    assert_eq!(fixture.content("up"), content);
    fixture.session_works(&mut control);
}

#[test]
fn too_large_a_count_of_ends_is_an_error_in_time() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 1);
    let content = pattern(1000);
    write_block(&mut channels[0], 0, &content).unwrap();
    let begin = Instant::now();
    channels[0]
        .write_all(&Block::end_of_file(2).bytes())
        .unwrap();
    let refused = control.dialogue().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begin.elapsed()
    );
    assert_reply(
        &refused.last,
        &[421, 425, 426, 500, 551],
        &["end|EOD|channel|connection"],
    );
    assert_eq!(fixture.content("up"), content, "received data was lost");
    fixture.session_works(&mut control);
}

#[test]
fn an_absurd_count_of_ends_is_an_error() {
    for count in [u64::MAX, 1 << 63, 1 << 32, 65_537] {
        let refused = refusal_after(&[Block::end_of_file(count)]);
        assert_reply(
            &refused.last,
            &[421, 425, 426, 500, 501, 551],
            &["end|EOD|channel|connection"],
        );
    }
}

#[test]
fn a_count_of_no_ends_is_an_error() {
    let refused = refusal_after(&[Block::end_of_file(0)]);
    assert_reply(
        &refused.last,
        &[426, 500, 501, 551],
        &["end|EOD|channel|connection"],
    );
}

#[test]
fn too_small_a_count_of_ends_is_an_error() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 2);
    let content = pattern(3000);
    write_block(&mut channels[0], 0, &content[..1000]).unwrap();
    write_block(&mut channels[1], 1000, &content[1000..2000]).unwrap();
    wait_until("both channels are in use", || {
        fixture.content("up") == content[..2000]
    });
    // One end is announced and received, but a second channel still has data.
    channels[0]
        .write_all(&Block::end_of_file(1).bytes())
        .unwrap();
    let _ = write_block(&mut channels[1], 2000, &content[2000..]);
    let _ = channels[1].write_all(&Block::end_of_data().bytes());
    let refused = control.dialogue().unwrap();
    assert_reply(
        &refused.last,
        &[421, 425, 426, 500, 551],
        &["end|EOD|channel|connection"],
    );
    assert_eq!(fixture.content("up").get(..2000), Some(&content[..2000]));
    fixture.session_works(&mut control);
}

#[test]
fn end_of_file_twice_is_an_error() {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 2);
    for channel in &mut channels {
        let _ = channel.write_all(&Block::end_of_file(2).bytes());
    }
    let refused = control.dialogue().unwrap();
    assert_reply(
        &refused.last,
        &[426, 500, 501, 551],
        &["EOF|end of file|end-of-file"],
    );
    fixture.session_works(&mut control);
}

#[test]
fn end_of_file_twice_with_other_counts_is_an_error() {
    let end = Block {
        descriptor: descriptor::EOF,
        count: 0,
        offset: 1,
    };
    let refused = refusal_after(&[end, Block::end_of_file(3)]);
    assert_reply(
        &refused.last,
        &[426, 500, 501, 551],
        &["EOF|end of file|end-of-file"],
    );
}

#[test]
fn data_may_follow_an_early_end_of_file() {
    // Observed from globus-gridftp-server 13.24: EOF first, then data with EOD on the same block.
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 1);
    let end = Block {
        descriptor: descriptor::EOF,
        count: 0,
        offset: 1,
    };
    channels[0].write_all(&end.bytes()).unwrap();
    write_block(&mut channels[0], 6, b"order").unwrap();
    channels[0].write_all(&Block::data(0, 0).bytes()).unwrap();
    let last = Block {
        descriptor: descriptor::EOD,
        count: 6,
        offset: 0,
    };
    channels[0].write_all(&last.bytes()).unwrap();
    channels[0].write_all(b"out of").unwrap();
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(fixture.content("up"), b"out oforder");
    fixture.session_works(&mut control);
}

#[test]
fn a_restart_block_is_not_data() {
    let marker = Block {
        descriptor: descriptor::RESTART,
        count: 10,
        offset: 500,
    };
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 1);
    let content = pattern(1000);
    write_block(&mut channels[0], 0, &content).unwrap();
    let _ = channels[0].write_all(&marker.bytes());
    let _ = channels[0].write_all(b"marker....");
    let _ = channels[0].write_all(&Block::end_of_file(1).bytes());
    let answer = control.dialogue().unwrap().last;
    if answer.code != 226 {
        assert_reply(&answer, &[426, 500, 501, 504, 551], &["restart|marker"]);
    }
    assert_eq!(
        fixture.content("up"),
        content,
        "the marker was taken as data"
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_block_marked_erroneous_is_refused() {
    let suspect = Block {
        descriptor: descriptor::ERROR,
        count: 0,
        offset: 1000,
    };
    let refused = refusal_after(&[suspect]);
    assert_reply(&refused.last, &[426, 500, 501, 551], &["error|suspect"]);
}

#[test]
fn empty_blocks_without_end_are_bounded_by_time() {
    let fixture = Fixture::ours(&STALL);
    let (mut control, mut channels) = storing(&fixture, 1);
    let blocks = Block::data(0, 0).bytes().repeat(1000);
    let begin = Instant::now();
    // Headers are no progress: the transfer stalls although bytes flow.
    while begin.elapsed() < Duration::from_secs(15) && channels[0].write_all(&blocks).is_ok() {}
    let refused = control.dialogue().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "a flood of empty blocks is not bounded"
    );
    assert_reply(
        &refused.last,
        &[421, 425, 426, 500],
        &["stall|slow|progress|timed out|timeout"],
    );
    fixture.session_works(&mut control);
}

#[test]
fn a_channel_that_ends_inside_a_header_is_an_error() {
    interrupted(&Block::data(1000, 1000).bytes()[..9]);
}

#[test]
fn a_channel_that_ends_inside_a_payload_is_an_error() {
    let mut bytes = Block::data(1000, 1000).bytes().to_vec();
    bytes.extend(&pattern(500));
    interrupted(&bytes);
}

#[test]
fn a_channel_that_ends_without_its_end_of_data_is_an_error() {
    interrupted(b"");
}

/// The channel is closed without a reset after 1000 valid bytes and these.
#[track_caller]
fn interrupted(bytes: &[u8]) {
    let fixture = Fixture::ours(&DATA_TIMEOUT);
    let (mut control, mut channels) = storing(&fixture, 1);
    let content = pattern(1000);
    write_block(&mut channels[0], 0, &content).unwrap();
    channels[0].write_all(bytes).unwrap();
    drop(channels);
    let refused = control.dialogue().unwrap();
    assert_reply(&refused.last, &[426, 500, 551], &["end|EOD|closed"]);
    assert_eq!(fixture.content("up").get(..1000), Some(&content[..]));
    fixture.session_works(&mut control);
}
