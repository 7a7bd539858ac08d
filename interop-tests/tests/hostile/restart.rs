//! An interrupted upload keeps the received data, and a restart completes the file, for interruptions
//! at various offsets.

use std::io::Write;
use std::net::TcpStream;

use gridhaul_interop::raw::{
    Block, Control, Dialogue, connect_data, get_stream, reset, send_blocks, stream_transfer,
    write_block,
};

use crate::fixture::{DATA_TIMEOUT, Fixture, pattern, wait_until};

/// The length of the file: several blocks of the real server's size and a remainder.
const LENGTH: usize = 3 * 262_144 + 12_345;

/// The offsets of the interruption: at the ends, around block and buffer sizes, and in between.
const CUTS: [usize; 14] = [
    0,
    1,
    16,
    17,
    4095,
    4096,
    65_536,
    262_143,
    262_144,
    262_145,
    500_001,
    700_000,
    LENGTH - 1,
    LENGTH,
];

/// The kind of interruption.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The data connection is reset.
    Reset,
    /// The client sends ABOR.
    Abort,
    /// The control channel is lost.
    ControlLost,
    /// The client stalls.
    Silence,
}

impl Cut {
    /// Interrupts the transfer; returns the replies, if the control channel still exists.
    fn make(self, mut control: Control, channels: Vec<TcpStream>) -> Option<Dialogue> {
        match self {
            Self::Reset => channels
                .into_iter()
                .for_each(|channel| reset(channel).unwrap()),
            Self::Abort => control.send_line("ABOR").unwrap(),
            Self::ControlLost => {
                drop(control);
                return None;
            }
            Self::Silence => {
                let dialogue = control.dialogue().unwrap();
                drop(channels);
                return Some(dialogue);
            }
        }
        Some(control.dialogue().unwrap())
    }
}

#[test]
fn streams_that_are_reset_restart() {
    streams_restart(Cut::Reset, &CUTS);
}

#[test]
fn streams_that_are_aborted_restart() {
    streams_restart(Cut::Abort, &CUTS);
}

#[test]
fn streams_whose_control_channel_is_lost_restart() {
    streams_restart(Cut::ControlLost, &CUTS);
}

#[test]
fn streams_that_stall_restart() {
    streams_restart(Cut::Silence, &[1, 262_145]);
}

#[test]
fn blocks_that_are_reset_restart() {
    blocks_restart(Cut::Reset, &CUTS);
}

#[test]
fn blocks_that_are_aborted_restart() {
    blocks_restart(Cut::Abort, &CUTS);
}

#[test]
fn blocks_whose_control_channel_is_lost_restart() {
    blocks_restart(Cut::ControlLost, &CUTS);
}

#[test]
fn blocks_that_stall_restart() {
    blocks_restart(Cut::Silence, &[1, 262_145]);
}

fn served() -> Fixture {
    Fixture::ours(&[&DATA_TIMEOUT[..], &["--stall-timeout", "1"]].concat())
}

/// Restarts with REST and an offset, as ordinary FTP clients do.
fn streams_restart(cut: Cut, places: &[usize]) {
    let fixture = served();
    let content = pattern(LENGTH);
    for &place in places {
        let mut control = fixture.session();
        let mut channel = connect_data(control.passive().unwrap()).unwrap();
        control.must("STOR up", 150).unwrap();
        channel.write_all(&content[..place]).unwrap();
        wait_until("the sent bytes are in the file", || {
            fixture.content("up").len() == place
        });
        let said = cut.make(control, vec![channel]);
        assert!(
            said.is_none_or(|said| said.last.code >= 400),
            "{cut:?} at {place} was a success"
        );
        assert_eq!(
            fixture.content("up"),
            content[..place],
            "{cut:?} at {place} lost something"
        );
        let mut control = fixture.session();
        let size = control.must("SIZE up", 213).unwrap();
        control.must(&format!("REST {}", size.tail()), 350).unwrap();
        stream_transfer(&mut control, "STOR up", |mut channel| {
            channel.write_all(&content[place..])
        })
        .unwrap();
        assert!(
            fixture.content("up") == content,
            "{cut:?} at {place}: not the same bytes"
        );
        control.must("DELE up", 250).unwrap();
    }
}

/// Restarts with REST and the ranges of the 111 markers, as globus-url-copy does in a third-party copy.
fn blocks_restart(cut: Cut, places: &[usize]) {
    let fixture = served();
    let content = pattern(LENGTH);
    for &place in places {
        let mut control = fixture.session();
        control.must("MODE E", 200).unwrap();
        control.must("TREV RESTART 1", 200).unwrap();
        let port = control.passive().unwrap();
        let mut channels = [connect_data(port).unwrap(), connect_data(port).unwrap()];
        control.must("STOR up", 150).unwrap();
        interleaved(&mut channels, &content, place);
        wait_until("the sent bytes are in the file", || {
            is_there(&fixture.content("up"), &content, place)
        });
        let said = cut.make(control, channels.into());
        let after = fixture.content("up");
        assert!(
            is_there(&after, &content, place),
            "{cut:?} at {place} lost something"
        );
        assert!(
            said.as_ref().is_none_or(|said| said.last.code >= 400),
            "{cut:?} at {place}: {said:?}"
        );
        let safe = said.map_or_else(Vec::new, |said| said.range_markers().unwrap());
        for &(start, end) in &safe {
            let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            assert!(
                after.get(range.clone()) == content.get(range),
                "a 111 marker was not true"
            );
        }
        complete(&fixture, &content, &safe);
        assert!(
            fixture.content("up") == content,
            "{cut:?} at {place}: not the same bytes"
        );
    }
}

/// Sends the first `place` bytes in blocks of irregular sizes over two channels; the last one is truncated.
fn interleaved(channels: &mut [TcpStream; 2], content: &[u8], place: usize) {
    for (index, offset) in (0..place).step_by(100_001).enumerate() {
        let end = (offset + 100_001).min(LENGTH);
        let header = Block::data((end - offset) as u64, offset as u64);
        let channel = &mut channels[index % 2];
        channel.write_all(&header.bytes()).unwrap();
        channel.write_all(&content[offset..end.min(place)]).unwrap();
    }
}

fn is_there(file: &[u8], content: &[u8], place: usize) -> bool {
    file.get(..place) == Some(&content[..place])
}

/// A new session sends everything outside the safe ranges.
fn complete(fixture: &Fixture, content: &[u8], safe: &[(u64, u64)]) {
    let mut safe = safe.to_vec();
    safe.sort_unstable();
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let mut missing = Vec::new();
    let mut position = 0;
    for &(start, end) in &safe {
        let (start, end) = (
            usize::try_from(start).unwrap(),
            usize::try_from(end).unwrap(),
        );
        missing.push((position as u64, &content[position..start]));
        position = end;
    }
    missing.push((position as u64, &content[position..]));
    let port_before_rest = |control: &mut Control, ranges: &[(u64, &[u8])]| {
        let list: Vec<String> = safe
            .iter()
            .map(|(start, end)| format!("{start}-{end}"))
            .collect();
        if !list.is_empty() {
            control
                .must(&format!("REST {}", list.join(",")), 350)
                .unwrap();
        }
        send_blocks(control, "STOR up", ranges, 2).unwrap()
    };
    let dialogue = port_before_rest(&mut control, &missing);
    assert_eq!(dialogue.last.code, 226);
}

#[test]
fn markers_before_the_failure_suffice_for_a_restart() {
    let fixture = served();
    let content = pattern(LENGTH);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    control.must("TREV RESTART 1", 200).unwrap();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("STOR up", 150).unwrap();
    write_block(&mut channel, 0, &content[..300_000]).unwrap();
    write_block(&mut channel, 500_000, &content[500_000..600_000]).unwrap();
    let mut markers = Dialogue {
        preliminary: Vec::new(),
        last: control.reply().unwrap(),
    };
    while markers.range_markers().unwrap().is_empty() {
        // Markers must be sent during a pause of the transfer, before the stall timeout.
        markers.preliminary.push(control.reply().unwrap());
        assert!(
            markers.preliminary.last().unwrap().is_preliminary(),
            "{markers}"
        );
    }
    assert_eq!(
        markers.range_markers().unwrap(),
        [(0, 300_000), (500_000, 600_000)]
    );
    reset(channel).unwrap();
    assert!(control.dialogue().unwrap().last.code >= 400);
    complete(&fixture, &content, &[(0, 300_000), (500_000, 600_000)]);
    assert!(fixture.content("up") == content);
}

#[test]
fn downloads_restart_at_every_place() {
    let fixture = Fixture::ours(&[]);
    let content = pattern(LENGTH);
    fixture.file("data", &content);
    let mut control = fixture.session();
    for place in CUTS {
        control.must(&format!("REST {place}"), 350).unwrap();
        assert!(
            get_stream(&mut control, "data").unwrap() == content[place..],
            "at {place}"
        );
    }
}

#[test]
fn overwriting_truncates_the_old_file() {
    let fixture = Fixture::ours(&[]);
    fixture.file("up", &pattern(LENGTH));
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    send_blocks(&mut control, "STOR up", &[(0, b"short")], 2).unwrap();
    assert_eq!(fixture.content("up"), b"short");
}

#[test]
fn fewer_bytes_than_announced_are_an_error_with_both_numbers() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    control.must("ALLO 2000", 200).unwrap();
    let content = pattern(1000);
    let refused = send_blocks(&mut control, "STOR up", &[(0, &content)], 1).unwrap_err();
    let words = refused.to_string();
    assert!(words.contains("1000") && words.contains("2000"), "{words}");
    assert_eq!(fixture.content("up"), content, "received data was lost");
    fixture.session_works(&mut control);
}
