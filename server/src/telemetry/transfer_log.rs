//! One line for each transfer, in the format of globus-gridftp-server's `-Z`, which sites evaluate.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;

use super::append_file::{AppendFile, OpenLogs};
use super::event::Transfer;
use super::log_message::LogFile;
use super::log_writer::LogWriter;
use super::whole_lines::{Gaps, WholeLines};
use crate::machine;

/// The file of the transfer log.
#[derive(Debug)]
pub(crate) struct TransferLog {
    file: AppendFile,
    host: String,
}

impl TransferLog {
    pub(crate) fn open(path: &Path, opener: &dyn OpenLogs) -> io::Result<Self> {
        Ok(Self {
            file: AppendFile::open(path, opener, Gaps::Unmarked)?,
            host: machine::host_name(),
        })
    }

    pub(crate) fn reopen(&self, opener: &dyn OpenLogs) -> io::Result<()> {
        self.file.reopen(opener)
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Sends lines to the log process from now on.
    pub(crate) fn write_through(&self, writer: &Arc<LogWriter>) {
        self.file.write_through(writer, LogFile::Transfers);
    }

    /// A duplicate of the file, for the log process.
    pub(crate) fn duplicate(&self) -> io::Result<WholeLines> {
        self.file.duplicate()
    }

    pub(crate) fn record(&self, transfer: &Transfer<'_>) -> io::Result<()> {
        self.file.append(line(&self.host, transfer).as_bytes())
    }
}

/// The format of globus-gridftp-server 13.24: fields and their order are fixed. That server does not escape names, so a name
/// with spaces can forge fields there.
fn line(host: &str, transfer: &Transfer<'_>) -> String {
    let peers = destinations(transfer);
    format!(
        "DATE={} HOST={host} PROG=gridhaul-server NL.EVNT=FTP_INFO START={} USER={} FILE={} BUFFER={} \
         BLOCK={} NBYTES={} VOLUME=/ STREAMS={} STRIPES={} DEST=[{peers}] TYPE={} CODE={} TASKID={}\n",
        time(transfer.finished),
        time(transfer.started),
        encoded(transfer.user),
        encoded(transfer.path),
        transfer.buffer_bytes,
        transfer.block_bytes,
        transfer.bytes,
        transfer.channels,
        transfer.stripes,
        transfer.verb,
        transfer.code,
        transfer.task_id.map_or_else(|| "none".to_owned(), encoded),
    )
}

/// That server has one address here: of the first data channel, or with data nodes one of each node, also if they are equal. With several
/// peers and no data nodes this server has the address of each.
fn destinations(transfer: &Transfer<'_>) -> String {
    let of_nodes = transfer.nodes.iter().filter_map(|node| node.peer);
    let of_nodes: Vec<_> = of_nodes.collect();
    let peers = if of_nodes.is_empty() {
        transfer.peers
    } else {
        &of_nodes
    };
    let peers: Vec<_> = peers
        .iter()
        .map(|peer| peer.to_canonical().to_string())
        .collect();
    peers.join(",")
}

/// UTC with microseconds.
fn time(time: SystemTime) -> String {
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    timestamp.strftime("%Y%m%d%H%M%S.%6f").to_string()
}

/// Clients choose names: none may end a field or the line, for a reader that splits the line at spaces and `=`, or as a
/// shell does. Such characters are percent-encoded (RFC 3986 2.1), and so is the percent sign, so that the name can be
/// decoded.
fn encoded(text: &str) -> String {
    let ends_a_field =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, '=' | '%' | '"' | '\'' | '\\');
    let mut encoded = String::with_capacity(text.len());
    for c in text.chars() {
        if ends_a_field(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a String cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        } else {
            encoded.push(c);
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use gridhaul_transfer::NodePart;
    use proptest::prelude::*;

    use super::*;
    use crate::telemetry::Client;
    use crate::transfer_verb::TransferVerb;

    const PEERS: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

    fn transfer() -> Transfer<'static> {
        Transfer {
            session: 7,
            user: "anonymous",
            client: Client::LOCAL,
            verb: TransferVerb::Retr,
            path: "/D/tree/f3",
            started: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_167_833_379_549),
            finished: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_167_833_379_792),
            bytes: 2,
            channels: 1,
            stripes: 1,
            peers: &PEERS,
            nodes: &[],
            refused: 0,
            last_refusal: None,
            buffer_bytes: 131_072,
            block_bytes: 262_144,
            movement: None,
            details: &[],
            counted: &[],
            checksums: &[],
            code: 226,
            error: None,
            cause: None,
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
    fn each_data_node_has_its_peer() {
        let node = |name: &str, peer| NodePart {
            name: name.to_owned(),
            peer,
        };
        let [peer] = PEERS;
        let other = IpAddr::from([192, 0, 2, 1]);
        let nodes = [
            node("dtn1:7512", Some(peer)),
            node("dtn2:7512", Some(peer)),
            // It failed before it had a channel.
            node("dtn3:7512", None),
            node("dtn4:7512", Some(other)),
        ];
        let striped = Transfer {
            nodes: &nodes,
            stripes: 4,
            ..transfer()
        };
        let line = line("host", &striped);
        let expected = " STRIPES=4 DEST=[127.0.0.1,127.0.0.1,192.0.2.1] TYPE=";
        assert!(line.contains(expected), "{line}");
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
        assert!(line.contains("FILE=/a%0ADATE%3D1 "), "{line}");
    }

    /// The fields of a line as a reader sees them that splits at spaces and `=`.
    fn fields(line: &str) -> Vec<(&str, &str)> {
        let fields = line.split_whitespace().map(|field| {
            let (name, value) = field.split_once('=').expect("a field");
            assert!(!value.contains('='), "{field}");
            (name, value)
        });
        fields.collect()
    }

    fn decoded(text: &str) -> String {
        let mut parts = text.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
            bytes.extend(&part.as_bytes()[2..]);
        }
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn assert_unforged(user: &str, path: &str, task: &str) {
        let forged = Transfer {
            user,
            path,
            task_id: Some(task),
            ..transfer()
        };
        let (plain, line) = (line("host", &transfer()), line("host", &forged));
        assert_eq!(line.lines().count(), 1, "{line}");
        let (plain, fields) = (fields(&plain), fields(&line));
        assert_eq!(fields.len(), plain.len(), "{line}");
        for ((expected_name, expected), (name, value)) in plain.into_iter().zip(fields) {
            assert_eq!(name, expected_name);
            match name {
                "USER" => assert_eq!(decoded(value), user),
                "FILE" => assert_eq!(decoded(value), path),
                "TASKID" => assert_eq!(decoded(value), task),
                _ => assert_eq!(value, expected),
            }
        }
    }

    #[test]
    fn names_cannot_forge_fields() {
        let fields = " NBYTES=999999 CODE=226 ";
        assert_unforged(fields, &format!("/x{fields}"), fields);
        assert_unforged("\u{a0}CODE=1", "/\u{3000}CODE=1\u{2028}", "\u{85}x=1");
        assert_unforged("it's", "/\"100%\"", "'back\\slash'");
        assert_unforged("ü", "/per%41cent/漢字", "0a1b-2c");
    }

    proptest! {
        #[test]
        fn nothing_that_clients_send_forges_a_field(
            user in "\\PC{0,20}|.{0,20}",
            path in "/([a= %'\"\\\\]|.){0,40}",
            task in "([a= %]|.){0,20}",
        ) {
            assert_unforged(&user, &path, &task);
        }
    }
}
