//! A minimal HTTP server for scrapers.
//!
//! It answers `GET /metrics` and closes the connection after each response. All resources of a client are bounded:
//! connections at a time, bytes of a request, and the time for request and response.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

use crate::shutdown::{Phase, PhaseWatch};
use crate::telemetry::repeats::tell;

/// The limit of connections; more wait to be accepted.
const CONNECTIONS: usize = 16;

/// The limit of a request with all headers.
const REQUEST_BYTES: usize = 8 * 1024;

/// The time limit for a request and its response.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The pause while the process has no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers scrapers with the page that `page` makes, until the server is shut down.
pub(crate) async fn respond(
    listener: TcpListener,
    page: impl Fn() -> String + Send + Sync + 'static,
    mut phase: PhaseWatch,
) {
    let page = Arc::new(page);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = phase.reached(Phase::Draining) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let page = Arc::clone(&page);
                tokio::spawn(async move {
                    // A client that is too slow or has disconnected gets no response.
                    let _ = timeout(TIME_LIMIT, answer(stream, &*page)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                if let Some(untold) = tell("accept for metrics") {
                    warn!(%error, untold, "a connection for metrics could not be accepted");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, page: &(impl Fn() -> String + Sync)) -> io::Result<()> {
    let mut request = Vec::new();
    while !is_whole(&request) && request.len() < REQUEST_BYTES {
        let room = (REQUEST_BYTES - request.len()) as u64;
        if (&mut stream).take(room).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = match kind(&request) {
        Request::Metrics => ("200 OK", page()),
        Request::OtherPath => ("404 Not Found", "There is only /metrics.\n".to_owned()),
        Request::OtherMethod => (
            "405 Method Not Allowed\r\nAllow: GET",
            "There is only GET.\n".to_owned(),
        ),
        Request::Nonsense => ("400 Bad Request", "This is no HTTP.\n".to_owned()),
        Request::TooLong => (
            "431 Request Header Fields Too Large",
            "The request is too long.\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// The requested resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Metrics,
    OtherPath,
    OtherMethod,
    Nonsense,
    TooLong,
}

/// RFC 9112 2.2: the headers end with an empty line.
fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
}

/// Parses the request line. Headers are ignored.
fn kind(request: &[u8]) -> Request {
    if !is_whole(request) {
        return Request::TooLong;
    }
    let line = request.split(|&byte| byte == b'\r').next();
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else {
        return Request::Nonsense;
    };
    let path = target.split('?').next();
    match (version.starts_with("HTTP/1."), method, path) {
        (false, _, _) => Request::Nonsense,
        (true, "GET", Some("/metrics")) => Request::Metrics,
        (true, "GET", _) => Request::OtherPath,
        (true, _, _) => Request::OtherMethod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_decides() {
        let cases = [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Request::Metrics),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", Request::Metrics),
            ("GET / HTTP/1.1\r\n\r\n", Request::OtherPath),
            ("GET /metricsandmore HTTP/1.1\r\n\r\n", Request::OtherPath),
            ("POST /metrics HTTP/1.1\r\n\r\n", Request::OtherMethod),
            ("GET /metrics\r\n\r\n", Request::Nonsense),
            ("GET /metrics HTTP/2\r\n\r\n", Request::Nonsense),
            ("\r\n\r\n", Request::Nonsense),
            ("GET /metrics HTTP/1.1\r\n", Request::TooLong),
        ];
        for (request, expected) in cases {
            assert_eq!(kind(request.as_bytes()), expected, "{request:?}");
        }
        assert_eq!(kind(b"GET /\xff HTTP/1.1\r\n\r\n"), Request::Nonsense);
    }
}
