//! Log lines as JSON objects with the types of their values: numbers, truth values, and arrays for lists.
//!
//! The formatter of `tracing-subscriber` writes lists as text.

use std::error::Error;
use std::fmt::{self, Write as _};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::list::List;

/// The format of one JSON object a line.
#[derive(Debug)]
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut object = Object(String::from("{"));
        object.put("timestamp", &time);
        object.put("level", event.metadata().level().as_str());
        event.record(&mut object);
        object.put("target", event.metadata().target());
        writeln!(writer, "{}}}", object.0)
    }
}

/// A JSON object that is being written.
struct Object(String);

impl Object {
    fn put(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        // Texts, numbers and lists of texts can always be written.
        let (Ok(name), Ok(value)) = (serde_json::to_string(name), serde_json::to_string(value))
        else {
            return;
        };
        let comma = if self.0.len() > 1 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{comma}{name}:{value}");
    }
}

impl Visit for Object {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        match List::in_value(value) {
            Some(list) => self.put(field.name(), list),
            None => self.put(field.name(), &value.to_string()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_have_the_types_of_json() {
        let memory = Memory::default();
        let writer = {
            let memory = memory.clone();
            move || memory.clone()
        };
        let lines = tracing_subscriber::fmt::layer().event_format(JsonLines);
        let subscriber = tracing_subscriber::registry().with(lines.with_writer(writer));
        tracing::subscriber::with_default(subscriber, || {
            let peers = List::of(["192.0.2.7", "2001:db8::1"]);
            let nothing: Option<&str> = None;
            tracing::warn!(
                target: "audit",
                session = 7_u64,
                seconds = 0.5,
                read_only = false,
                peers = peers.as_ref().map(List::value),
                nothing,
                error = %io::Error::other("a \"disk\" is full"),
                "transfer \n finished"
            );
        });
        let line = memory.0.lock().expect("no panic").clone();
        let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        let mut expected = serde_json::json!({
            "level": "WARN",
            "message": "transfer \n finished",
            "session": 7,
            "seconds": 0.5,
            "read_only": false,
            "peers": ["192.0.2.7", "2001:db8::1"],
            "error": "a \"disk\" is full",
            "target": "audit",
        });
        expected["timestamp"] = line["timestamp"].clone();
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
        assert_eq!(line, expected);
    }
}
