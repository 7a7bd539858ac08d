//! The clock of a peer, if it speaks HTTP: its answers have the time (RFC 9110 6.6.1).
//!
//! The control channel of FTP tells no time to strangers. Many hosts of a grid also serve WebDAV, a page or metrics.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::findings::Findings;

const ABOUT: &str = "peer-clock";

/// A server of FTP greets within this time.
const GREETING: Duration = Duration::from_millis(500);

/// The time limit of the answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Proxies are valid from the second in which they were made, and hosts that synchronize their clocks differ by much less.
const MUCH: Duration = Duration::from_secs(5);

/// Compares the clocks. `stream` is new.
pub(super) fn check(report: &mut Findings, peer: &str, stream: TcpStream) {
    match told(stream) {
        Ok(Some(ahead)) => tell(report, peer, ahead),
        Ok(None) => report.ok(
            ABOUT,
            format!(
                "{peer} tells no time; name a port at which the host speaks HTTP to compare the clocks: --peer HOST:PORT"
            ),
        ),
        Err(error) => report.ok(
            ABOUT,
            format!(
                "{peer} tells no time ({error}); name a port at which the host speaks HTTP to compare the clocks: --peer HOST:PORT"
            ),
        ),
    }
}

/// By how many seconds the clock of the peer is ahead; `None` if it does not tell.
fn told(mut stream: TcpStream) -> io::Result<Option<f64>> {
    const MOST: u64 = 16 << 10;

    stream.set_read_timeout(Some(GREETING))?;
    stream.set_write_timeout(Some(ANSWER))?;
    if stream.peek(&mut [0; 1]).is_ok() {
        // It speaks first, so it does not speak HTTP.
        return Ok(None);
    }
    stream.set_read_timeout(Some(ANSWER))?;
    let asked = SystemTime::now();
    stream.write_all(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut head = Vec::new();
    let read = stream.take(MOST).read_to_end(&mut head);
    let answered = SystemTime::now();
    let head = String::from_utf8_lossy(&head);
    match date(&head) {
        Some(date) => Ok(Some(ahead(date, asked, answered))),
        None => read.map(|_| None),
    }
}

/// The field `Date` of an answer, in seconds since 1970.
fn date(head: &str) -> Option<i64> {
    let (head, _) = head.split_once("\r\n\r\n").unwrap_or((head, ""));
    let mut lines = head.lines();
    lines.next()?.strip_prefix("HTTP/1.")?;
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    let parsed = rfc2822::DateTimeParser::new().parse_timestamp(value.trim());
    parsed.ok().map(Timestamp::as_second)
}

/// The date has whole seconds, so it stands for a second; differences within that, or within the wait, are none.
fn ahead(date: i64, asked: SystemTime, answered: SystemTime) -> f64 {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    };
    let (earliest, latest) = (seconds(asked), seconds(answered));
    let date = date as f64;
    if date > latest {
        date - latest
    } else if date + 1.0 < earliest {
        date + 1.0 - earliest
    } else {
        0.0
    }
}

fn tell(report: &mut Findings, peer: &str, ahead: f64) {
    if ahead.abs() < MUCH.as_secs_f64() {
        return report.ok(ABOUT, format!("{peer} has the same time as this host"));
    }
    let direction = if ahead > 0.0 { "ahead" } else { "behind" };
    report.warning(
        ABOUT,
        format!(
            "the clock of {peer} is {:.0} s {direction}: credentials that one host makes are not valid yet, or not any more, \
             for the other",
            ahead.abs()
        ),
        "run chrony or systemd-timesyncd on both hosts",
    );
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::check::report::Verdict;

    /// What is found about a peer that greets and answers so.
    fn found(greeting: &'static str, answer: String) -> Findings {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            stream.write_all(greeting.as_bytes()).expect("sent");
            let mut asked = [0; 256];
            if stream.read(&mut asked).is_ok_and(|count| count > 0) {
                stream.write_all(answer.as_bytes()).expect("sent");
            }
        });
        let mut report = Findings::default();
        let stream = TcpStream::connect(address).expect("connected");
        check(&mut report, "there", stream);
        peer.join().expect("no panic");
        report
    }

    fn answer(ahead: i64) -> String {
        let now = Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT");
        format!("HTTP/1.1 404 Not Found\r\ndate: {date}\r\n\r\n")
    }

    #[test]
    fn clocks_of_peers_with_http_are_compared() {
        for (greeting, answer, warnings) in [
            ("", answer(0), 0),
            ("", answer(-40), 1),
            ("", answer(3600), 1),
            ("", "HTTP/1.1 200 OK\r\nDate: soon\r\n\r\n".to_owned(), 0),
            ("", "nothing of that\r\n".to_owned(), 0),
            ("220 ready\r\n", String::new(), 0),
        ] {
            let report = found(greeting, answer.clone()).report;
            assert_eq!(report.count(Verdict::Warning), warnings, "{answer}");
        }
    }
}
