//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// Lines that a scraper reads.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// What may become of a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of what lies below bounds.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Text {
    /// Begins the samples of one name. `help` is a line.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = kind.name();
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Adds a sample. Values of labels are words of this program or the names of
    /// devices of this machine, which have nothing to escape.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.write(format_args!("{name}"));
        for (index, (label, word)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{word}\""));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{after} {value}\n"));
    }

    /// A name with a single sample.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Counters that one label tells apart.
    pub(super) fn counters<'a>(
        &mut self,
        (name, label): (&str, &str),
        help: &str,
        counts: impl IntoIterator<Item = (&'a &'static str, &'a u64)>,
    ) {
        self.family(name, Kind::Counter, help);
        for (word, count) in counts {
            self.sample(name, &[(label, word)], count);
        }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // A String takes everything.
        let _ = self.0.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_look_as_the_format_has_them() {
        let mut text = Text::default();
        text.single("a_total", Kind::Counter, "How many.", 3);
        text.family("b", Kind::Gauge, "How much.");
        text.sample("b", &[("x", "y"), ("z", "+Inf")], 0.5);
        assert_eq!(
            text.into_string(),
            "# HELP a_total How many.\n# TYPE a_total counter\na_total 3\n\
             # HELP b How much.\n# TYPE b gauge\nb{x=\"y\",z=\"+Inf\"} 0.5\n"
        );
    }
}
