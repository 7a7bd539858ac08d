//! The lines of finished transfers in the server's log, in both formats.
//!
//! Clients choose paths, so a line is parsed as the log writes it: a value in quotes ends at the first quote without a
//! backslash before it.

use std::time::Duration;

use serde_json::Value;

use super::bottleneck::{Facts, Rdma, Times};

/// The message of the lines.
const MESSAGE: &str = "transfer finished";

/// A finished transfer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finished {
    pub(super) verb: String,
    pub(super) path: String,
    pub(super) facts: Facts,
}

/// The transfer of a line, if it is about a successful one.
pub(super) fn parse(line: &str) -> Option<Finished> {
    let fields = Fields::of(line)?;
    let field = |name: &str| fields.value(name);
    if field("error").is_some() {
        return None;
    }
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let seconds: f64 = field("seconds")?.parse().ok()?;
    let verb = field("verb")?;
    let details = field("details").unwrap_or_default();
    let detail = |name: &str| detail(&details, name);
    let micros = |name: &str| detail(name).map(Duration::from_micros);
    // The line of a small file has no counts of 0.
    let times = micros("busy-us").map(|busy| Times {
        busy,
        receiver: micros("receiver-limited-us").unwrap_or_default(),
        buffer: micros("buffer-limited-us").unwrap_or_default(),
    });
    Some(Finished {
        path: field("path")?,
        facts: Facts {
            sends: matches!(verb.as_str(), "RETR" | "ERET"),
            took: Duration::try_from_secs_f64(seconds).ok()?,
            bytes: number("bytes")?,
            channels: number("channels")?,
            rtt: micros("rtt-us"),
            least_rtt: micros("least-rtt-us"),
            retransmits: detail("retransmits"),
            times,
            bandwidth_wait: micros("bandwidth-wait-us").unwrap_or_default(),
            rate: detail("rate"),
            rdma: detail("ring-bytes").map(|ring_bytes| Rdma {
                stalls: detail("stalls").unwrap_or(0),
                retries: detail("retries").unwrap_or(0),
                ring_bytes,
                wanted_ring_bytes: detail("wanted-ring-bytes"),
            }),
        },
        verb,
    })
}

/// The fields of a line about a finished transfer.
enum Fields {
    Json(serde_json::Map<String, Value>),
    Text(Vec<(String, String)>),
}

impl Fields {
    /// `None` if the line is about something else.
    fn of(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            let fields: serde_json::Map<String, Value> = serde_json::from_str(line).ok()?;
            let message = fields.get("message")?.as_str()?;
            return (message == MESSAGE).then_some(Self::Json(fields));
        }
        let (_, fields) = line.split_once(&format!(": {MESSAGE} "))?;
        Some(Self::Text(fields_of(fields)))
    }

    fn value(&self, name: &str) -> Option<String> {
        match self {
            Self::Json(fields) => match fields.get(name)? {
                Value::String(text) => Some(text.clone()),
                Value::Null => None,
                Value::Array(items) => {
                    let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                    Some(items.join(" "))
                }
                other => Some(other.to_string()),
            },
            Self::Text(fields) => {
                let (_, value) = fields.iter().find(|(known, _)| known == name)?;
                Some(value.clone())
            }
        }
    }
}

/// A number in the text of the details, which drivers wrote: `rtt-us=250 retransmits=0`.
fn detail(details: &str, name: &str) -> Option<u64> {
    let mut words = details.split(' ').filter_map(|word| word.split_once('='));
    words.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// The fields of a line of text: `name=value` and `name="quoted \"value\""`.
fn fields_of(text: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None if after.starts_with('[') => list(&after[1..]),
            None => {
                let end = after.find(' ').unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        fields.push((name.trim().to_owned(), value));
        rest = after.trim_start();
    }
    fields
}

/// The items of a list up to its closing bracket, with spaces between them, and the text after it. Items with other
/// characters are in quotes.
fn list(text: &str) -> (String, &str) {
    let mut items = Vec::new();
    let mut rest = text;
    loop {
        let (item, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = rest.find([',', ']']).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        items.push(item);
        match after.strip_prefix(", ") {
            Some(next) => rest = next,
            None => return (items.join(" "), after.strip_prefix(']').unwrap_or(after)),
        }
    }
}

/// A value up to its closing quote, and the text after it. A character after a backslash is not the end.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.extend(chars.next().map(|(_, next)| next)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAILS: [&str; 14] = [
        "device=a \"b]\"",
        "rtt-us=20000",
        "retransmits=3",
        "busy-us=9000000",
        "receiver-limited-us=100",
        "buffer-limited-us=200",
        "least-rtt-us=19000",
        "bandwidth-wait-us=4000000",
        "rate=1000",
        "ring-bytes=4096",
        "stalls=1",
        "retries=2",
        "wanted-ring-bytes=8192",
        "pages=huge",
    ];

    /// The list in a line of text; the first item has characters that need quotes.
    fn in_text() -> String {
        format!("[{:?}, {}]", DETAILS[0], DETAILS[1..].join(", "))
    }

    fn facts() -> Facts {
        Facts {
            sends: true,
            took: Duration::from_secs(10),
            bytes: 1000,
            channels: 2,
            rtt: Some(Duration::from_millis(20)),
            least_rtt: Some(Duration::from_millis(19)),
            retransmits: Some(3),
            times: Some(Times {
                busy: Duration::from_secs(9),
                receiver: Duration::from_micros(100),
                buffer: Duration::from_micros(200),
            }),
            bandwidth_wait: Duration::from_secs(4),
            rate: Some(1000),
            rdma: Some(Rdma {
                stalls: 1,
                retries: 2,
                ring_bytes: 4096,
                wanted_ring_bytes: Some(8192),
            }),
        }
    }

    #[test]
    fn both_formats_have_the_same_facts() {
        let text = format!(
            "2026-11-24T22:00:00Z  INFO gridhaul_server::telemetry::journal: transfer finished session=1 user=\"a\" \
             verb=\"RETR\" path=\"/x\" bytes=1000 seconds=10.0 channels=2 peers=[127.0.0.1] details={} refused=0 \
             result=226",
            in_text()
        );
        let json = format!(
            "{{\"timestamp\":\"x\",\"level\":\"INFO\",\"message\":\"transfer finished\",\"session\":1,\"user\":\"a\",\
             \"verb\":\"RETR\",\"path\":\"/x\",\"bytes\":1000,\"seconds\":10.0,\"channels\":2,\"details\":{DETAILS:?}}}"
        );
        for line in [text, json] {
            let found = parse(&line).expect(&line);
            assert_eq!(
                (found.path.as_str(), found.facts),
                ("/x", facts()),
                "{line}"
            );
        }
    }

    #[test]
    fn a_path_forges_no_field() {
        let path = r#"/x\" bytes=999 details=\"busy-us=1\" "#;
        let line = format!(
            "t INFO a: transfer finished verb=\"RETR\" path=\"{path}\" bytes=1000 seconds=10 channels=2 details={}",
            in_text()
        );
        let found = parse(&line).expect("parsed");
        assert_eq!(found.facts, facts());
        assert_eq!(found.path, "/x\" bytes=999 details=\"busy-us=1\" ");
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "{",
            "{\"message\":\"logged in\"}",
            "t INFO a: logged in user=\"transfer finished\"",
            "t INFO a: transfer finished bytes=1",
            "t INFO a: transfer finished verb=\"RETR\" path=\"/x\" bytes=1 seconds=inf channels=1",
            "t INFO a: transfer finished verb=\"RETR\" path=\"/x\" bytes=1 seconds=1 channels=1 error=\"gone\"",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
