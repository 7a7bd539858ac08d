//! Limits of connections and transfers, and timeouts of idle peers.

use std::io::Read;
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::raw::{Control, connect_data, descriptor, get_stream, read_channel};

use crate::fixture::{Fixture, HELLO, assert_reply, pattern};

#[test]
fn connections_beyond_the_limit_are_refused() {
    let fixture = Fixture::ours(&["--max-connections", "3"]);
    let mut sessions: Vec<Control> = (0..3).map(|_| fixture.session()).collect();
    let mut refused = Control::connect(fixture.address()).unwrap();
    let replies = refused.until_closed().unwrap();
    assert_reply(&replies[0], &[421], &["Connection limit exceeded"]);
    // Another address is refused as well.
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut refused = Control::connect_from(other, fixture.address()).unwrap();
    assert_reply(&refused.until_closed().unwrap()[0], &[421], &["limit"]);
    for session in &mut sessions {
        fixture.session_works(session);
    }
    sessions.pop().unwrap().must("QUIT", 221).unwrap();
    fixture.serves_again();
}

#[test]
fn connections_beyond_the_limit_of_an_address_are_refused() {
    let fixture = Fixture::ours(&["--max-connections-per-address", "2"]);
    let mut sessions: Vec<Control> = (0..2).map(|_| fixture.session()).collect();
    let mut refused = Control::connect(fixture.address()).unwrap();
    assert_reply(
        &refused.until_closed().unwrap()[0],
        &[421],
        &["limit", "address"],
    );
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut welcome = Control::connect_from(other, fixture.address()).unwrap();
    assert_eq!(welcome.reply().unwrap().code, 220);
    welcome.log_in().unwrap();
    fixture.session_works(&mut sessions[0]);
    sessions.clear();
    fixture.serves_again();
}

#[test]
fn a_flood_of_connections_does_not_lock_the_server() {
    let fixture = Fixture::ours(&["--max-connections", "50"]);
    let mut session = fixture.session();
    let flood: Vec<Control> = (0..500)
        .map(|_| Control::connect(fixture.address()).unwrap())
        .collect();
    fixture.session_works(&mut session);
    drop(flood);
    fixture.serves_again();
}

#[test]
fn a_session_without_login_times_out() {
    let fixture = Fixture::ours(&["--login-timeout", "1"]);
    let begin = Instant::now();
    let mut silent = Control::greeted(fixture.address()).unwrap();
    let mut half = Control::greeted(fixture.address()).unwrap();
    half.must("USER anonymous", 331).unwrap();
    for control in [&mut silent, &mut half] {
        let replies = control.until_closed().unwrap();
        assert_reply(&replies[0], &[421], &["login|log in|timeout"]);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begin.elapsed()
    );
    fixture.serves();
}

#[test]
fn a_slow_login_times_out() {
    let fixture = Fixture::ours(&["--login-timeout", "2"]);
    let mut control = Control::greeted(fixture.address()).unwrap();
    let mut dripping = control.socket().try_clone().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let drip = thread::spawn(move || {
        // Each byte and each NOOP arrives before an idle timer would expire.
        for byte in b"NOOP\r\n".iter().cycle() {
            let wait = stopped.recv_timeout(Duration::from_millis(200));
            if wait != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
            if std::io::Write::write_all(&mut dripping, &[*byte]).is_err() {
                return;
            }
        }
    });
    let begin = Instant::now();
    let replies = control.until_closed().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begin.elapsed()
    );
    assert_reply(replies.last().unwrap(), &[421], &["login|log in|timeout"]);
    drop(stop);
    drip.join().unwrap();
    fixture.serves();
}

#[test]
fn wrong_passwords_are_counted() {
    let fixture = Fixture::ours(&["--max-login-attempts", "3"]);
    let mut control = Control::greeted(fixture.address()).unwrap();
    for _ in 0..3 {
        if control.send(b"USER nosuch\r\nPASS wrong\r\n").is_err() {
            break;
        }
    }
    let replies = control.until_closed().unwrap();
    assert!(replies.iter().any(|reply| reply.code == 530), "{replies:?}");
    assert!(replies.iter().all(|reply| reply.code != 230), "{replies:?}");
    fixture.serves();
}

#[test]
fn an_idle_session_is_closed() {
    let fixture = Fixture::ours(&["--idle-timeout", "1"]);
    let mut control = fixture.session();
    let begin = Instant::now();
    let replies = control.until_closed().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        begin.elapsed()
    );
    assert_reply(replies.last().unwrap(), &[421], &["Idle|timeout"]);
    fixture.serves();
}

#[test]
fn a_session_with_a_transfer_is_not_idle() {
    let fixture = Fixture::ours(&["--idle-timeout", "1"]);
    let path = fixture.large_file("large");
    let mut control = fixture.session();
    let mut channel = connect_data(control.passive().unwrap()).unwrap();
    control.must("RETR large", 150).unwrap();
    let begin = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    // Slow progress, for three times the idle timeout.
    loop {
        let wait = if begin.elapsed() < Duration::from_secs(3) {
            20
        } else {
            0
        };
        thread::sleep(Duration::from_millis(wait));
        match channel.read(&mut buffer).unwrap() {
            0 => break,
            count => received += count as u64,
        }
    }
    assert_eq!(received, path.metadata().unwrap().len());
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}

#[test]
fn a_transfer_beyond_the_limit_waits() {
    let fixture = Fixture::ours(&["--max-transfers", "1"]);
    fixture.large_file("large");
    let mut first = fixture.session();
    let mut channel = connect_data(first.passive().unwrap()).unwrap();
    first.must("RETR large", 150).unwrap();
    let mut second = fixture.session();
    let mut waiting = connect_data(second.passive().unwrap()).unwrap();
    second.send_line("RETR hello.txt").unwrap();
    // A client must get a 1xx reply in time, but not 150 or 125, which mean that the transfer has started.
    let notice = second.reply().unwrap();
    assert!(
        notice.is_preliminary() && ![125, 150].contains(&notice.code),
        "{notice}"
    );
    std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(first.dialogue().unwrap().last.code, 226);
    let mut content = Vec::new();
    waiting.read_to_end(&mut content).unwrap();
    assert_eq!(content, HELLO.1);
    assert_eq!(second.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut first);
}

#[test]
fn a_waiting_transfer_may_be_aborted() {
    let fixture = Fixture::ours(&["--max-transfers", "1"]);
    fixture.large_file("large");
    let mut first = fixture.session();
    let mut channel = connect_data(first.passive().unwrap()).unwrap();
    first.must("RETR large", 150).unwrap();
    let mut second = fixture.session();
    let _waiting = connect_data(second.passive().unwrap()).unwrap();
    second.send_line("RETR hello.txt").unwrap();
    second.send_line("ABOR").unwrap();
    assert_reply(&second.dialogue().unwrap().last, &[426], &["abort"]);
    assert_reply(&second.reply().unwrap(), &[225, 226], &["abort"]);
    std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(first.dialogue().unwrap().last.code, 226);
    assert_eq!(get_stream(&mut second, "hello.txt").unwrap(), HELLO.1);
}

#[test]
fn fewer_workers_than_channels_open_fewer_channels() {
    let fixture = Fixture::ours(&["--movers", "2"]);
    let content = pattern(3_000_000);
    fixture.file("data", &content);
    let mut control = fixture.session();
    control.must("MODE E", 200).unwrap();
    control.must("OPTS RETR Parallelism=8,8,8;", 200).unwrap();
    let listener = control.listen().unwrap();
    control.must("RETR data", 150).unwrap();
    let mut received = vec![0; content.len()];
    let mut announced = None;
    let mut ended = 0;
    while announced.is_none_or(|announced| ended < announced) {
        let mut channel = listener.accept().unwrap();
        for incoming in read_channel(&mut channel).unwrap() {
            let block = incoming.block;
            if block.descriptor & descriptor::EOF != 0 {
                announced = Some(block.offset);
            } else {
                let start = usize::try_from(block.offset).unwrap();
                received[start..start + incoming.payload.len()].copy_from_slice(&incoming.payload);
            }
        }
        ended += 1;
    }
    assert!(received == content, "not the same bytes");
    assert_eq!(control.dialogue().unwrap().last.code, 226);
    fixture.session_works(&mut control);
}
