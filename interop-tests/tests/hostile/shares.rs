//! Clients that use all their resources leave a share for others.

use std::io::Read;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{Control, get_stream};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::fixture::{Fixture, HELLO};

/// The number of the server's threads for files.
const SESSIONS: u8 = 64;

/// The time limit of a login, which without fair shares would wait for the other clients.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Checks a login, a listing and a transfer from another address.
#[track_caller]
fn others_are_served(fixture: &Fixture) {
    let begin = Instant::now();
    let mut other =
        Control::anonymous_from(Ipv4Addr::new(127, 0, 0, 2), fixture.address()).unwrap();
    other.must("MLST", 250).unwrap();
    assert_eq!(get_stream(&mut other, HELLO.0).unwrap(), HELLO.1);
    assert!(begin.elapsed() < AT_ONCE, "it took {:?}", begin.elapsed());
}

#[test]
fn unread_listings_hold_no_thread() {
    let fixture = Fixture::ours(&[]);
    let many = fixture.folder("many");
    for number in 0..30_000 {
        // Ten megabytes of facts in all, more than the socket buffers of a connection.
        std::fs::write(many.join(format!("{number:0>230}")), b"").unwrap();
    }
    let path = fixture.path("many");
    let mut unread = Vec::new();
    for number in 0..SESSIONS {
        let source = Ipv4Addr::new(127, 0, 1, number % 8 + 1);
        let mut session = Control::anonymous_from(source, fixture.address()).unwrap();
        set_socket_recv_buffer_size(session.socket(), 4096).unwrap();
        session.send_line(&format!("MLSC {path}")).unwrap();
        unread.push(session);
    }
    for session in &unread {
        session.socket().read_exact(&mut [0; 64]).unwrap();
    }
    others_are_served(&fixture);
}

#[test]
fn unread_transfers_leave_room_for_others() {
    let fixture = Fixture::ours(&["--max-transfers", "16"]);
    fixture.large_file("large");
    let path = fixture.path("large");
    let mut unread = Vec::new();
    for _ in 0..16 {
        let mut session = fixture.session();
        let listener = session.listen().unwrap();
        session.send_line(&format!("RETR {path}")).unwrap();
        unread.push((session, listener));
    }
    // Transfers that are not read use three quarters of the share of anonymous users.
    let running = unread.iter_mut().take(10).map(|(session, listener)| {
        assert_eq!(session.reply().unwrap().code, 150);
        listener.accept().unwrap()
    });
    let _channels: Vec<_> = running.collect();
    others_are_served(&fixture);
}
