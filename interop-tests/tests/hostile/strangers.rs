//! Data connections from hosts that are not the control channel's peer.
//!
//! In an anonymous session only the host of the control channel may open a data channel (RFC 2577). The server closes
//! connections of other hosts, and the transfer continues. The other hosts have 127.0.0.2, the sessions 127.0.0.1.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use gridhaul_interop::raw::{Block, connect_data, connect_from, write_block};

use crate::fixture::{Fixture, HELLO, pattern};

const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn a_third_host_receives_no_stream() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let port = control.passive().unwrap();
    let connection = intrude(port);
    control.send_line("RETR hello.txt").unwrap();
    closed_without_data(connection);
    let mut content = Vec::new();
    connect_data(port)
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    assert_eq!(content, HELLO.1);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}

#[test]
fn a_third_host_writes_no_stream() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let port = control.passive().unwrap();
    let mut connection = intrude(port);
    // The connection may be closed already.
    let _ = connection.write_all(b"forged");
    control.send_line("STOR up").unwrap();
    let mut channel = connect_data(port).unwrap();
    closed_without_data(connection);
    channel.write_all(b"genuine").unwrap();
    drop(channel);
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(fixture.content("up"), b"genuine");
    fixture.session_works(&mut control);
}

#[test]
fn a_third_host_writes_no_blocks() {
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
    // Another connection during the transfer, if the port is still open.
    let during = connect_from(STRANGER, port);
    if let Ok(mut during) = during {
        let _ = write_block(&mut during, 0, b"forged");
        let _ = during.write_all(&Block::end_of_file(1).bytes());
        closed_without_data(during);
    }
    closed_without_data(before);
    write_block(&mut channel, 300_000, &content[300_000..]).unwrap();
    channel.write_all(&Block::end_of_file(1).bytes()).unwrap();
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    assert_eq!(fixture.content("up"), content);
    fixture.session_works(&mut control);
}

#[test]
fn many_third_hosts_do_not_block_the_peer() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let port = control.passive().unwrap();
    let connections: Vec<TcpStream> = (0..100)
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
    connections.into_iter().for_each(closed_without_data);
    fixture.session_works(&mut control);
}

#[track_caller]
fn intrude(port: SocketAddr) -> TcpStream {
    connect_from(STRANGER, port).unwrap()
}

/// Checks that the server closes the connection without sending a byte.
#[track_caller]
fn closed_without_data(mut connection: TcpStream) {
    let mut received = Vec::new();
    match connection.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection was not closed: {error}"),
    }
    assert_eq!(received, b"", "the other host received data");
}
