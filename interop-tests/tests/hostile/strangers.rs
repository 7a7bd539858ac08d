//! Data connections from hosts that are not the control channel's peer.
//!
//! In an anonymous session only the control peer may open a data channel. A stranger is closed and
//! does not disturb the transfer. The strangers here come from 127.0.0.2, the sessions from 127.0.0.1.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use gridhaul_interop::raw::{Block, connect_data, connect_from, write_block};

use crate::fixture::{Fixture, HELLO, pattern};

const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn a_stranger_gets_nothing_of_a_stream() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let port = control.passive().unwrap();
    let stranger = intrude(port);
    control.send_line("RETR hello.txt").unwrap();
    turned_away(stranger);
    let mut content = Vec::new();
    connect_data(port)
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    assert_eq!(content, HELLO.1);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.goes_on(&mut control);
}

#[test]
fn a_stranger_writes_nothing_into_a_stream() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let port = control.passive().unwrap();
    let mut stranger = intrude(port);
    // It may be closed already.
    let _ = stranger.write_all(b"forged");
    control.send_line("STOR up").unwrap();
    let mut channel = connect_data(port).unwrap();
    turned_away(stranger);
    channel.write_all(b"genuine").unwrap();
    drop(channel);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(fixture.content("up"), b"genuine");
    fixture.goes_on(&mut control);
}

#[test]
fn a_stranger_writes_no_blocks() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    let port = control.passive().unwrap();
    let mut before = intrude(port);
    let _ = write_block(&mut before, 0, b"forged");
    let mut channel = connect_data(port).unwrap();
    control.must("STOR up", 150).unwrap();
    let content = pattern(600_000);
    write_block(&mut channel, 0, &content[..300_000]).unwrap();
    // One more in the middle, if the port is still open.
    let during = connect_from(STRANGER, port);
    if let Ok(mut during) = during {
        let _ = write_block(&mut during, 0, b"forged");
        let _ = during.write_all(&Block::end_of_file(1).bytes());
        turned_away(during);
    }
    turned_away(before);
    write_block(&mut channel, 300_000, &content[300_000..]).unwrap();
    channel.write_all(&Block::end_of_file(1).bytes()).unwrap();
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(fixture.content("up"), content);
    fixture.goes_on(&mut control);
}

#[test]
fn many_strangers_do_not_keep_the_peer_out() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let port = control.passive().unwrap();
    let strangers: Vec<TcpStream> = (0..100)
        .map_while(|_| connect_from(STRANGER, port).ok())
        .collect();
    control.send_line("RETR hello.txt").unwrap();
    let mut content = Vec::new();
    connect_data(port)
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    assert_eq!(content, HELLO.1);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    strangers.into_iter().for_each(turned_away);
    fixture.goes_on(&mut control);
}

#[track_caller]
fn intrude(port: SocketAddr) -> TcpStream {
    connect_from(STRANGER, port).unwrap()
}

/// The server closes the connection, and sent nothing over it.
#[track_caller]
fn turned_away(mut stranger: TcpStream) {
    let mut received = Vec::new();
    match stranger.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the stranger was not closed: {error}"),
    }
    assert_eq!(received, b"", "the stranger got something");
}
