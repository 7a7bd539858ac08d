//! The end that listens: it serves one peer that knows the word, and ends by itself.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use gridhaul_stack::{Cancel, Channel, ChannelError, Operation, Received, StackListener};

use super::ANSWER;
use super::lines::Lines;
use super::messages::{Direction, HELLO, Measured, Trial};
use super::stacks::{ROOM, Stacks};
use super::trial;
use super::word::{Nonces, Role, Word, nonce};
use crate::check::report::counted;
use crate::doctor::findings::Findings;
use crate::harmful::is_harmful;
use crate::machine::host_name;

const ABOUT: &str = "rdma";

/// How long it waits for the peer.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a connection may take to prove that it knows the word. Others wait meanwhile.
const PROOF: Duration = Duration::from_secs(5);

/// Connections without the word after which it ends.
const MOST_STRANGERS: usize = 100;

/// Trials of a peer.
const MOST_TRIALS: usize = 32;

/// How long the peer may think between two trials.
const PAUSE: Duration = Duration::from_secs(30);

/// Listens at a port, 0 for any, and serves one peer.
///
/// # Errors
///
/// When the word cannot be shown.
pub(super) fn listen(
    report: &mut Findings,
    output: &mut impl Write,
    port: u16,
    stacks: &Stacks,
) -> io::Result<()> {
    let listener = match bind(port) {
        Ok(listener) => listener,
        Err(error) => {
            report.error(
                ABOUT,
                format!("no connections can be taken at port {port}: {error}"),
                "give another port: --rdma-listen PORT",
            );
            return Ok(());
        }
    };
    let word = Word::random();
    let address = listener.local_addr()?;
    writeln!(
        output,
        "On the other machine run this, with the address of its path to this one in the place of the name, and type the word:\n\n    \
         gridhaul-server doctor --rdma {}:{}\n\nword: {word}\n",
        host_name(),
        address.port()
    )?;
    output.flush()?;
    serve(report, &listener, &word, stacks, PATIENCE);
    Ok(())
}

/// At all addresses of the machine.
fn bind(port: u16) -> io::Result<TcpListener> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    both.or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        // The machine has no IPv6.
        _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
    })
}

fn serve(
    report: &mut Findings,
    listener: &TcpListener,
    word: &Word,
    stacks: &Stacks,
    patience: Duration,
) {
    const AGAIN: &str =
        "start it again, and then doctor --rdma on the other machine within 10 minutes";

    let deadline = Instant::now() + patience;
    for strangers in 0..MOST_STRANGERS {
        let (stream, peer) = match accept(listener, deadline) {
            Ok(Some(connection)) => connection,
            Ok(None) => {
                let text = format!("no peer with the word has come{}", also(strangers));
                return report.error(ABOUT, text, AGAIN);
            }
            Err(error) => {
                let text = format!("no connection can be taken: {error}");
                return report.error(ABOUT, text, AGAIN);
            }
        };
        let mut lines = Lines::new(stream);
        if admit(&mut lines, word).is_err() {
            continue;
        }
        // Where one socket takes both families, IPv4 addresses are mapped.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        match serve_peer(&mut lines, peer.ip(), stacks) {
            Ok(trials) => report.ok(
                ABOUT,
                format!(
                    "{peer} has made {}{}: it shows the result",
                    counted(trials, "measurement"),
                    also(strangers)
                ),
            ),
            Err(error) => report.error(
                ABOUT,
                format!("{peer} has left before its end: {error}"),
                "look at the report there",
            ),
        }
        return;
    }
    let text = format!("{MOST_STRANGERS} connections came without the word");
    report.error(
        ABOUT,
        text,
        "let only the other machine reach the port (firewall), and start it again",
    );
}

fn also(strangers: usize) -> String {
    match strangers {
        0 => String::new(),
        count => format!(" ({} came without the word)", counted(count, "connection")),
    }
}

/// The next connection; `None` at the deadline.
fn accept(
    listener: &TcpListener,
    deadline: Instant,
) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(deadline),
        cancel: &cancel,
    };
    listener.set_nonblocking(true)?;
    loop {
        match operation.wait_readable(listener.as_fd()) {
            Ok(()) => {}
            Err(ChannelError::DeadlineExceeded) => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        }
        match listener.accept() {
            Ok((stream, peer)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some((stream, peer)));
            }
            // The peer has gone meanwhile (accept(2)).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Exchanges proofs that both ends know the word.
pub(super) fn admit(lines: &mut Lines, word: &Word) -> io::Result<()> {
    let deadline = Instant::now() + PROOF;
    let left = || deadline.saturating_duration_since(Instant::now());
    let listener = nonce();
    lines.send(&format!("{HELLO} {listener}"), PROOF)?;
    let hello = lines.receive(left())?;
    let asker = hello
        .strip_prefix(HELLO)
        .and_then(|rest| rest.strip_prefix(' '));
    let asker = asker.ok_or(io::ErrorKind::InvalidData)?.to_owned();
    let nonces = Nonces { listener, asker };
    let proof = lines.receive(left())?;
    if !word.is_proof(Role::Asks, &nonces, &proof) {
        lines.send("error the word is another one", PROOF)?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let ours = word.proof(Role::Listens, &nonces);
    lines.send(&format!("welcome {ours}"), PROOF)
}

/// Makes trials until the peer has enough; returns how many.
fn serve_peer(lines: &mut Lines, peer: IpAddr, stacks: &Stacks) -> io::Result<usize> {
    for trials in 0..MOST_TRIALS {
        let line = lines.receive(PAUSE)?;
        if line == "end" {
            return Ok(trials);
        }
        let answer = match Trial::parse(&line) {
            None => Err("this end does not know such a trial".to_owned()),
            Some(trial) => serve_trial(lines, peer, &trial, stacks),
        };
        let answer = match answer {
            Ok(measured) => measured.line(),
            Err(text) => format!("error {}", one_line(&text)),
        };
        lines.send(&answer, ANSWER)?;
    }
    Err(io::Error::other("it wanted too many measurements"))
}

/// A text of an error for the peer.
fn one_line(text: &str) -> String {
    const MOST: usize = 400;
    let letters = text.chars().take(MOST);
    letters
        .map(|letter| if is_harmful(letter) { ' ' } else { letter })
        .collect()
}

fn serve_trial(
    lines: &mut Lines,
    peer: IpAddr,
    trial: &Trial,
    stacks: &Stacks,
) -> Result<Measured, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let stack = stacks.build(trial, true)?;
    let local = lines.stream().local_addr().map_err(|error| words(&error))?;
    let is_sending = trial.direction == Direction::Get;
    let sockets = Stacks::sockets(is_sending);
    let listener = stack.listen(local.ip().to_canonical(), &sockets);
    let mut listener = listener.map_err(|error| words(&error))?;
    let (token, port) = (nonce(), listener.address().port());
    let told = lines.send(&format!("port {port} {token}"), ANSWER);
    told.map_err(|error| words(&error))?;

    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + trial.time + ROOM),
        cancel: &cancel,
    };
    let mut channel = take(&mut listener, peer, &token, &operation)?;
    let done = match is_sending {
        true => trial::send(&mut *channel, trial.time, &operation),
        false => trial::receive(&mut *channel, trial.time, &operation),
    };
    done.map_err(|error| words(&error))
}

/// The channel of the peer: from its address, and with the token.
fn take(
    listener: &mut StackListener,
    peer: IpAddr,
    token: &str,
    operation: &Operation<'_>,
) -> Result<Box<dyn Channel>, String> {
    const MOST: usize = 16;

    let mut last = "it has another address";
    for _ in 0..MOST {
        let incoming = listener
            .accept(operation)
            .map_err(|error| error.to_string())?;
        if incoming.peer().ip().to_canonical() != peer.to_canonical() {
            continue;
        }
        // If it fails, both ends have the error, and no other connection comes.
        let channel = incoming.establish(operation);
        let mut channel = channel.map_err(|error| error.to_string())?;
        if has_token(&mut *channel, token, operation) {
            return Ok(channel);
        }
        last = "it has no token";
    }
    Err(format!("no data connection was right: {last}"))
}

/// Whether the first bytes are the token.
fn has_token(channel: &mut dyn Channel, token: &str, operation: &Operation<'_>) -> bool {
    let mut received = vec![0; token.len()];
    let mut count = 0;
    while count < received.len() {
        match channel.receive(&mut received[count..], operation) {
            Ok(Received::Bytes(more)) => count += more.get(),
            Ok(Received::EndOfStream) | Err(_) => return false,
        }
    }
    verify_slices_are_equal(&received, token.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::thread;

    use super::super::asking::introduce;
    use super::*;
    use crate::check::report::Verdict;

    fn text(report: &Findings) -> String {
        let mut text = Vec::new();
        report.report.write(&mut text).expect("written");
        String::from_utf8(text).expect("UTF-8")
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    #[test]
    fn it_ends_without_a_peer() {
        let (listener, _) = listener();
        let mut report = Findings::default();
        let stacks = Stacks::of_defaults();
        serve(
            &mut report,
            &listener,
            &Word::random(),
            &stacks,
            Duration::from_millis(20),
        );
        let text = text(&report);
        assert!(text.contains("no peer with the word has come;"), "{text}");
        assert_eq!(report.report.count(Verdict::Error), 1);
    }

    #[test]
    fn strangers_are_sent_away_and_counted() {
        let (listener, address) = listener();
        let word = Word::random();
        let typed = Word::parse(&word.to_string()).expect("a word");
        let serving = thread::spawn(move || {
            let mut report = Findings::default();
            serve(
                &mut report,
                &listener,
                &word,
                &Stacks::of_defaults(),
                PATIENCE,
            );
            text(&report)
        });
        let wrong = Word::random().proof(
            Role::Asks,
            &Nonces {
                listener: nonce(),
                asker: nonce(),
            },
        );
        for hello in [
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "\n\n".to_owned(),
            format!("{HELLO} 00\n{wrong}\n"),
            "x".repeat(100_000),
        ] {
            let mut stream = TcpStream::connect(address).expect("connected");
            // It may have closed the connection already.
            let _ = stream.write_all(hello.as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            assert!(!answer.contains("welcome"), "{answer}");
        }
        let mut peer = Lines::new(TcpStream::connect(address).expect("connected"));
        introduce(&mut peer, "host", &typed).expect("it knows the word");
        peer.send("end", PROOF).expect("sent");
        let text = serving.join().expect("no panic");
        assert!(
            text.contains("has made 0 measurements (4 connections came without"),
            "{text}"
        );
    }

    #[test]
    fn a_peer_that_leaves_ends_it() {
        let (listener, address) = listener();
        let word = Word::random();
        let typed = Word::parse(&word.to_string()).expect("a word");
        let asking = thread::spawn(move || {
            let stream = TcpStream::connect(address).expect("connected");
            let mut lines = Lines::new(stream);
            introduce(&mut lines, "host", &typed).expect("it knows the word");
        });
        let mut report = Findings::default();
        serve(
            &mut report,
            &listener,
            &word,
            &Stacks::of_defaults(),
            PATIENCE,
        );
        asking.join().expect("no panic");
        let text = text(&report);
        assert!(
            text.contains("has left before its end: unexpected end of file;"),
            "{text}"
        );
    }
}
