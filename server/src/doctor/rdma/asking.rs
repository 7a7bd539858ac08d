//! The end that asks: it connects to the one that listens, makes trials, and reports.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use gridhaul_stack::{Body, Cancel, Operation, Stack};
use gridhaul_tcp::{ConnectionFacts, connection_facts};

use super::judgement::{Row, judge};
use super::lines::Lines;
use super::messages::{Direction, HELLO, Measured, Trial};
use super::stacks::{ROOM, Stacks};
use super::trial;
use super::word::{Nonces, Role, Word, nonce};
use super::{ABOUT, ANSWER};
use crate::doctor::dialogue::TIME_LIMIT;
use crate::doctor::findings::Findings;

/// The sizes of messages that are tried: the default, and a fourth and four times that.
const SIZES: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];

/// The port of a GridFTP server, for a peer without one.
const GRIDFTP: u16 = 2811;

/// Why nothing was measured, and what helps.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("{0} has no address: {1}; correct the name, or give an address")]
    Name(String, io::Error),
    #[error(
        "{0} does not answer: {1}; run gridhaul-server doctor --rdma-listen there, give the port that it shows, and let it through \
         firewalls"
    )]
    Connect(String, io::Error),
    #[error(
        "{0} is a server of FTP or GridFTP, which needs an account; run gridhaul-server doctor --rdma-listen on that machine and give \
         the port that it shows, or measure with a file (gridhaul bench)"
    )]
    Ftp(String),
    #[error(
        "{0} answers \"{1}\": that is another program; give the port that gridhaul-server doctor --rdma-listen shows there"
    )]
    Other(String, String),
    #[error(
        "{0} speaks another version (\"{1}\"); install the same version of gridhaul at both ends"
    )]
    Version(String, String),
    #[error("{0} accepts another word; type the one that it shows now")]
    Word(String),
    #[error(
        "{0} has not proved that it knows the word; look whether another program has taken the port"
    )]
    Impostor(String),
    #[error("{0}: {1}; look at the report there, and start both ends again")]
    Lost(String, io::Error),
}

/// Makes trials of this time with a peer, `HOST:PORT`, and reports them.
pub(super) fn ask(report: &mut Findings, peer: &str, word: &Word, time: Duration, stacks: &Stacks) {
    let (mut lines, address) = match connect(peer, word) {
        Ok(connection) => connection,
        Err(error) => return failed(report, &error),
    };
    let facts = connection_facts(lines.stream().as_fd()).ok();
    if let Some(facts) = &facts {
        tell_path(report, peer, facts);
    }
    let mut end = Asker {
        lines: &mut lines,
        peer: address,
        stacks,
    };
    let rows = match end.measure(time) {
        Ok(rows) => rows,
        Err(error) => return failed(report, &AskError::Lost(peer.to_owned(), error)),
    };
    // The peer ends by itself if it does not hear that.
    let _ = lines.send("end", ANSWER);
    judge(report, &rows, stacks);
}

/// The text of an error ends with what helps.
fn failed(report: &mut Findings, error: &AskError) {
    let text = error.to_string();
    let (problem, remedy) = text
        .split_once("; ")
        .unwrap_or((&text, "start both ends again"));
    report.error(ABOUT, problem, remedy);
}

fn tell_path(report: &mut Findings, peer: &str, facts: &ConnectionFacts) {
    report.ok(
        ABOUT,
        format!(
            "path: {peer} is {:.2} ms away, and IP packets of {} bytes fit, as TCP knows it",
            facts.rtt.as_secs_f64() * 1000.0,
            facts.path_mtu
        ),
    );
}

/// `HOST:PORT`, perhaps as a URL.
fn addresses(peer: &str) -> io::Result<Vec<SocketAddr>> {
    let host = peer.split_once("://").map_or(peer, |(_, rest)| rest);
    let host = host.trim_end_matches('/');
    // The resolver knows interfaces of link-local addresses, `fe80::1%eth0`, but no brackets.
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| io::ErrorKind::InvalidInput)?,
            None => GRIDFTP,
        };
        return Ok((address, port).to_socket_addrs()?.collect());
    }
    let found = host.to_socket_addrs().map(Vec::from_iter);
    found.or_else(|_| Ok((host, GRIDFTP).to_socket_addrs()?.collect()))
}

fn connect(peer: &str, word: &Word) -> Result<(Lines, SocketAddr), AskError> {
    let named = || peer.to_owned();
    let addresses = addresses(peer).map_err(|error| AskError::Name(named(), error))?;
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIME_LIMIT) {
            Ok(stream) => {
                let mut lines = Lines::new(stream);
                introduce(&mut lines, peer, word)?;
                return Ok((lines, address));
            }
            Err(error) => last = error,
        }
    }
    Err(AskError::Connect(named(), last))
}

/// Exchanges proofs that both ends know the word. A server that waits for a request answers this one with an error.
pub(super) fn introduce(lines: &mut Lines, peer: &str, word: &Word) -> Result<(), AskError> {
    let named = || peer.to_owned();
    let lost = |error| AskError::Lost(named(), error);
    let asker = nonce();
    lines
        .send(&format!("{HELLO} {asker}"), ANSWER)
        .map_err(lost)?;
    let hello = lines.receive(ANSWER).map_err(lost)?;
    let listener = hello
        .strip_prefix(HELLO)
        .and_then(|rest| rest.strip_prefix(' '));
    let Some(listener) = listener else {
        return Err(stranger(peer, &hello));
    };
    let listener = listener.to_owned();
    let nonces = Nonces { listener, asker };
    let proof = word.proof(Role::Asks, &nonces);
    lines.send(&proof, ANSWER).map_err(lost)?;
    let answer = lines.receive(ANSWER).map_err(lost)?;
    match answer.strip_prefix("welcome ") {
        None => Err(AskError::Word(named())),
        Some(proof) if word.is_proof(Role::Listens, &nonces, proof) => Ok(()),
        Some(_) => Err(AskError::Impostor(named())),
    }
}

/// What answers with this line.
fn stranger(peer: &str, line: &str) -> AskError {
    const MOST: usize = 60;
    /// RFC 959: ready, and ready later.
    const GREETINGS: [&str; 3] = ["220 ", "220-", "120 "];

    let named = peer.to_owned();
    let shown: String = line.chars().take(MOST).collect();
    let name = HELLO.split(' ').next().unwrap_or_default();
    if line.starts_with(name) {
        return AskError::Version(named, shown);
    }
    match GREETINGS.iter().any(|greeting| line.starts_with(greeting)) {
        true => AskError::Ftp(named),
        false => AskError::Other(named, shown),
    }
}

struct Asker<'a> {
    lines: &'a mut Lines,
    peer: SocketAddr,
    stacks: &'a Stacks,
}

impl Asker<'_> {
    /// Each size of messages, then the best one the other way, and with more queue pairs.
    fn measure(&mut self, time: Duration) -> io::Result<Vec<Row>> {
        const MOST_QUEUE_PAIRS: u64 = 16;

        let mut rows = Vec::new();
        for message_bytes in SIZES {
            let row = self.row(Trial {
                direction: Direction::Put,
                message_bytes,
                queue_pairs: 0,
                time,
            })?;
            let has_failed = row.error.is_some();
            rows.push(row);
            if has_failed {
                // Others fail as well, some after a long time.
                return Ok(rows);
            }
        }
        let Some(best) = best(&rows) else {
            return Ok(rows);
        };
        let (trial, queue_pairs) = (best.trial, best.queue_pairs());
        rows.push(self.row(Trial {
            direction: Direction::Get,
            ..trial
        })?);
        let more = (queue_pairs * 2).min(MOST_QUEUE_PAIRS);
        if let Some(more) = u8::try_from(more).ok().filter(|_| more > queue_pairs) {
            rows.push(self.row(Trial {
                queue_pairs: more,
                ..trial
            })?);
        }
        Ok(rows)
    }

    /// # Errors
    ///
    /// When the peer is lost. A trial that fails is a row with its error.
    fn row(&mut self, trial: Trial) -> io::Result<Row> {
        let stack = match self.stacks.build(&trial, false) {
            Ok(stack) => stack,
            Err(words) => return Ok(Row::failed(trial, words)),
        };
        self.lines.send(&trial.line(), ANSWER)?;
        let answer = self.lines.receive(ANSWER)?;
        let Some((port, token)) = port(&answer) else {
            return Ok(Row::failed(trial, remote(&answer)));
        };
        // With the interface of a link-local address.
        let mut address = self.peer;
        address.set_port(port);
        let here = run(&stack, &trial, address, token);
        // It notices by itself that this end has failed.
        let answer = self.lines.receive(trial.time + ROOM + ANSWER)?;
        let there = Measured::parse(&answer).ok_or_else(|| remote(&answer));
        Ok(match (here, there) {
            (Ok(here), Ok(there)) => Row::done(trial, here, there),
            (Err(words), _) => Row::failed(trial, words),
            (Ok(_), Err(words)) => Row::failed(trial, words),
        })
    }
}

/// Connects to the other end, and moves the bytes of a trial.
fn run(stack: &Stack, trial: &Trial, address: SocketAddr, token: &str) -> Result<Measured, String> {
    let is_sending = trial.direction == Direction::Put;
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + trial.time + ROOM),
        cancel: &cancel,
    };
    let channel = stack.connect(address, &Stacks::sockets(is_sending), &operation);
    let mut channel = channel.map_err(|error| error.to_string())?;
    let token = Body::Memory(token.as_bytes());
    let sent = channel.send(b"", token, &operation);
    let done = sent.and_then(|()| match is_sending {
        true => trial::send(&mut *channel, trial.time, &operation),
        false => trial::receive(&mut *channel, trial.time, &operation),
    });
    done.map_err(|error| error.to_string())
}

/// The fastest row that has succeeded.
fn best(rows: &[Row]) -> Option<&Row> {
    let done = rows.iter().filter(|row| row.error.is_none());
    done.max_by(|one, other| one.rate().total_cmp(&other.rate()))
}

/// `port PORT TOKEN`
fn port(answer: &str) -> Option<(u16, &str)> {
    let (port, token) = answer.strip_prefix("port ")?.split_once(' ')?;
    Some((port.parse().ok()?, token))
}

/// The error of the other end.
fn remote(answer: &str) -> String {
    let words = answer.strip_prefix("error ").unwrap_or("it gave no result");
    format!("the other end: {words}")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::lines::tests::pair;
    use super::*;

    /// What a peer that sends this is taken for.
    fn taken_for(sent: &str) -> String {
        let (mut lines, mut there) = pair();
        there.write_all(sent.as_bytes()).expect("sent");
        there.shutdown(std::net::Shutdown::Write).expect("ended");
        let error = introduce(&mut lines, "host:1", &Word::random()).expect_err("a stranger");
        error.to_string()
    }

    #[test]
    fn peers_that_do_not_know_the_word_are_named() {
        for (sent, words) in [
            ("", "host:1: unexpected end of file"),
            (
                "HTTP/1.1 400 Bad Request\r\n\r\n",
                "answers \"HTTP/1.1 400 Bad Request\"",
            ),
            ("220 ready\r\n", "is a server of FTP or GridFTP"),
            ("gridhaul-doctor 2 00\n", "another version"),
            (
                "gridhaul-doctor 1 00\nerror the word is another one\n",
                "accepts another word",
            ),
            ("gridhaul-doctor 1 00\nwelcome 00\n", "has not proved"),
            ("gridhaul-doctor 1 00\n", "unexpected end of file"),
        ] {
            let error = taken_for(sent);
            assert!(error.contains(words), "{error}");
            assert!(error.contains("; "), "{error}");
        }
    }

    #[test]
    fn a_peer_may_be_a_url() {
        let port = |peer: &str| addresses(peer).expect("an address")[0].port();
        assert_eq!(port("127.0.0.1:4000"), 4000);
        assert_eq!(port("gsiftp://127.0.0.1:4000/"), 4000);
        assert_eq!(port("gsiftp://127.0.0.1"), GRIDFTP);
        assert_eq!(port("[::1]:7"), 7);
        assert_eq!(port("[::1]"), GRIDFTP);
        assert_eq!(port("::1"), GRIDFTP);
        assert!(addresses("[::1]:x").is_err());
    }

    #[test]
    fn a_link_local_address_has_its_interface() {
        for (peer, port) in [("[fe80::1%lo]:7", 7), ("fe80::1%lo", GRIDFTP)] {
            let found = addresses(peer).expect("an address");
            let [SocketAddr::V6(address)] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert_eq!((address.port(), address.scope_id()), (port, 1), "{peer}");
        }
    }
}

/// With a peer that knows the word.
#[cfg(all(test, feature = "rdma"))]
mod tests_with_a_peer {
    use std::net::TcpListener;
    use std::thread;

    use super::super::admission::admit;
    use super::*;

    /// The report of an end whose peer knows the word, and then does this.
    fn report(peer: impl FnOnce(Lines) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let word = Word::random();
        let typed = Word::parse(&word.to_string()).expect("a word");
        let listening = thread::spawn(move || {
            let came = admit(&listener, &word, Instant::now() + ANSWER).expect("no error");
            let (lines, _) = came.peer.expect("it knows the word");
            peer(lines);
        });
        let mut findings = Findings::default();
        let second = Duration::from_secs(1);
        ask(
            &mut findings,
            &address,
            &typed,
            second,
            &Stacks::of_defaults(),
        );
        listening.join().expect("no panic");
        let mut text = Vec::new();
        findings.report.write(&mut text).expect("written");
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn a_peer_that_leaves_in_the_middle_is_an_error() {
        let text = report(|mut lines| {
            lines.receive(ANSWER).expect("a trial");
        });
        assert!(text.contains("error    rdma: 127.0.0.1:"), "{text}");
        assert!(
            text.contains("unexpected end of file; look at the report there"),
            "{text}"
        );
    }

    #[test]
    fn a_peer_that_cannot_measure_tells_why() {
        let text = report(|mut lines| {
            let line = lines.receive(ANSWER).expect("a trial");
            assert!(Trial::parse(&line).is_some(), "{line}");
            lines.send("error no memory is left", ANSWER).expect("sent");
            assert_eq!(lines.receive(ANSWER).expect("the end"), "end");
        });
        assert!(
            text.contains("send with message=64K failed: the other end: no memory is left; see"),
            "{text}"
        );
        assert!(text.contains("\n1 error, 0 warnings\n"), "{text}");
    }

    #[test]
    fn answers_that_are_none_are_errors_of_the_trial() {
        for answer in ["port 99999 00", "done 1 1 1 1", "\u{1b}[2J"] {
            let text = report(|mut lines| {
                lines.receive(ANSWER).expect("a trial");
                lines.send(answer, ANSWER).expect("sent");
            });
            assert!(
                text.contains("failed: the other end: it gave no result"),
                "{text}"
            );
        }
    }
}
