//! One line for each transfer, in the format of globus-gridftp-server's `-Z` that sites evaluate.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;

use crate::append_file::AppendFile;
use crate::events::Transfer;

/// The transfer log's file.
#[derive(Debug)]
pub(crate) struct TransferLog {
    file: AppendFile,
    host: String,
}

impl TransferLog {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: AppendFile::open(path)?,
            host: crate::host_name(),
        })
    }

    pub(crate) fn reopen(&self) -> io::Result<()> {
        self.file.reopen()
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn record(&self, transfer: &Transfer<'_>) -> io::Result<()> {
        self.file.append(line(&self.host, transfer).as_bytes())
    }
}

/// The line, as observed from globus-gridftp-server 13.24: fields and their order are fixed.
fn line(host: &str, transfer: &Transfer<'_>) -> String {
    let mut peers = String::new();
    for peer in transfer.peers {
        let separator = if peers.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(peers, "{separator}{}", peer.to_canonical());
    }
    format!(
        "DATE={} HOST={host} PROG=gridhaul-server NL.EVNT=FTP_INFO START={} USER={} FILE={} BUFFER={} \
         BLOCK={} NBYTES={} VOLUME=/ STREAMS={} STRIPES={} DEST=[{peers}] TYPE={} CODE={} TASKID={}\n",
        time(transfer.finished),
        time(transfer.started),
        clean(transfer.user),
        clean(transfer.path),
        transfer.buffer_bytes,
        transfer.block_bytes,
        transfer.bytes,
        transfer.channels,
        transfer.stripes,
        transfer.verb,
        transfer.code,
        transfer.task_id.map_or_else(|| "none".to_owned(), clean),
    )
}

/// UTC with microseconds.
fn time(time: SystemTime) -> String {
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    timestamp.strftime("%Y%m%d%H%M%S.%6f").to_string()
}

/// Names come from clients: none of them may end the line.
fn clean(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut clean, c| {
            if c.is_control() {
                clean.extend(c.escape_default());
            } else {
                clean.push(c);
            }
            clean
        })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    const PEERS: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

    fn transfer() -> Transfer<'static> {
        Transfer {
            session: 7,
            user: "anonymous",
            verb: "RETR",
            path: "/D/tree/f3",
            started: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_167_833_379_549),
            finished: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_167_833_379_792),
            bytes: 2,
            channels: 1,
            stripes: 1,
            peers: &PEERS,
            refused: 0,
            last_refusal: None,
            buffer_bytes: 131_072,
            block_bytes: 262_144,
            movement: None,
            details: &[],
            checksums: &[],
            code: 226,
            error: None,
            task_id: None,
        }
    }

    #[test]
    fn a_line_is_that_of_the_real_server() {
        assert_eq!(
            line("host", &transfer()),
            "DATE=20261120094353.379792 HOST=host PROG=gridhaul-server NL.EVNT=FTP_INFO \
             START=20261120094353.379549 USER=anonymous FILE=/D/tree/f3 BUFFER=131072 BLOCK=262144 \
             NBYTES=2 VOLUME=/ STREAMS=1 STRIPES=1 DEST=[127.0.0.1] TYPE=RETR CODE=226 TASKID=none\n"
        );
    }

    #[test]
    fn names_cannot_forge_lines() {
        let forged = Transfer {
            path: "/a\nDATE=1",
            user: "x\r\n",
            task_id: Some("\u{7}"),
            ..transfer()
        };
        let line = line("host", &forged);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(line.contains("FILE=/a\\nDATE=1 "), "{line}");
    }
}
