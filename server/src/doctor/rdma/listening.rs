//! The end that listens: it serves one peer that knows the word, and ends by itself.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use gridhaul_stack::{Cancel, Operation};

use super::ANSWER;
use super::admission::{Came, admit};
use super::lines::Lines;
use super::messages::{Direction, Measured, Trial};
use super::stacks::{ROOM, Stacks};
use super::taking::with_channel;
use super::trial;
use super::word::{Word, nonce};
use crate::check::report::counted;
use crate::doctor::findings::Findings;
use crate::harmful::is_harmful;
use crate::machine::host_name;
use crate::sandbox::confine_measuring;

const ABOUT: &str = "rdma";

/// How long it waits for the peer.
const PATIENCE: Duration = Duration::from_secs(600);

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
    if !confine(report) {
        return Ok(());
    }
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

/// Confines this process before the first host connects. Whether it can go on.
fn confine(report: &mut Findings) -> bool {
    match confine_measuring() {
        Ok(confinement) => {
            for missing in confinement.missing() {
                let text = format!("this process is not confined completely: {missing}");
                let remedy =
                    "let only the other machine reach the port (firewall), or use a newer kernel";
                report.warning(ABOUT, text, remedy);
            }
            true
        }
        Err(error) => {
            let text = format!("this process cannot be confined: {error}");
            let remedy = "see what this machine or its container forbids (seccomp, Landlock)";
            report.error(ABOUT, text, remedy);
            false
        }
    }
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

    let came = match admit(listener, word, Instant::now() + patience) {
        Ok(came) => came,
        Err(error) => {
            let text = format!("no connection can be taken: {error}");
            return report.error(ABOUT, text, AGAIN);
        }
    };
    let Came { peer, strangers } = came;
    let Some((mut lines, peer)) = peer else {
        let text = format!("no peer with the word has come{}", also(strangers));
        return report.error(ABOUT, text, AGAIN);
    };
    let peer = canonical(peer);
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
}

/// Where one socket takes both families, IPv4 addresses are mapped.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn also(strangers: usize) -> String {
    match strangers {
        0 => String::new(),
        count => format!(" ({} came without the word)", counted(count, "connection")),
    }
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
    let sockets = Stacks::sockets(is_sending).at(local);
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
    let done = with_channel(
        &mut listener,
        peer,
        &token,
        &operation,
        |channel| match is_sending {
            true => trial::send(channel, trial.time, &operation),
            false => trial::receive(channel, trial.time, &operation),
        },
    );
    done?.map_err(|error| words(&error))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
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
    fn strangers_are_counted() {
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
        let _silent = TcpStream::connect(address).expect("connected");
        let mut peer = Lines::new(TcpStream::connect(address).expect("connected"));
        introduce(&mut peer, "host", &typed).expect("it knows the word");
        peer.send("end", ANSWER).expect("sent");
        let text = serving.join().expect("no panic");
        assert!(
            text.contains("has made 0 measurements (1 connection came without"),
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
