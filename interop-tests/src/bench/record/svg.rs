//! Bar charts as SVG, readable in light and dark mode, and in a text editor.
//!
//! This module and [`plot`](super::plot) write the SVG themselves. The crate `plotters` sets colours as attributes of
//! each element and writes neither a style sheet, which dark mode needs, nor an accessible name; it also adds 14
//! packages to `Cargo.lock`, most of them for WebAssembly, which exceeds the dependency budget.

/// A chart of horizontal bars in groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The unit of the values.
    pub unit: String,
    /// The bars.
    pub groups: Vec<Group>,
}

/// A group of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The label of the group.
    pub label: String,
    /// The series and value of each bar.
    pub bars: Vec<(Series, f64)>,
}

/// A series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// Our server.
    Ours,
    /// The real server.
    Theirs,
    /// The bare pump.
    Pump,
}

/// Sizes in pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 66.0;
const BAR: f64 = 16.0;
const GAP: f64 = 12.0;

/// The grey of the text is readable on white and on dark; in dark mode it is lighter.
pub(super) const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#777}\
    .title{font-size:16px;font-weight:600}\
    @media(prefers-color-scheme:dark){text{fill:#ccc}}";

impl Series {
    const ALL: [Self; 3] = [Self::Ours, Self::Theirs, Self::Pump];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "gridhaul",
            Self::Theirs => "globus-gridftp-server",
            Self::Pump => "bare pump",
        }
    }

    /// Colours that people with colour blindness can distinguish, also by lightness.
    fn colour(self) -> &'static str {
        match self {
            Self::Ours => "#1f77b4",
            Self::Theirs => "#e69f00",
            Self::Pump => "#999999",
        }
    }
}

impl Chart {
    /// Draws it.
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let longest = bars().map(|(_, value)| *value).fold(0.0, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / if longest > 0.0 { longest } else { 1.0 };
        let mut body = self.head();
        let mut y = TOP;
        for group in &self.groups {
            y = group.draw(&mut body, y, scale);
        }
        let title = escape(&self.title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
             viewBox=\"0 0 {WIDTH} {y}\" role=\"img\" aria-label=\"{title}\">\n\
             <style>{STYLE}</style>\n{body}</svg>\n"
        )
    }

    /// The title and the legend.
    fn head(&self) -> String {
        let mut head = text(
            16.0,
            24.0,
            "start",
            &format!("{}, {}", self.title, self.unit),
        );
        head = head.replacen("<text", "<text class=\"title\"", 1);
        let mut x = LEFT;
        for series in Series::ALL {
            let has_it = |group: &Group| group.bars.iter().any(|(known, _)| *known == series);
            if self.groups.iter().any(has_it) {
                head += &bar(x, 38.0, BAR, series);
                head += &text(x + BAR + 6.0, 51.0, "start", series.name());
                x += 180.0;
            }
        }
        head
    }
}

impl Group {
    /// Draws its bars from `y` downwards, and returns the position of the next group.
    fn draw(&self, body: &mut String, y: f64, scale: f64) -> f64 {
        let mut end = y;
        for (series, value) in &self.bars {
            let length = (value * scale).max(1.0);
            *body += &bar(LEFT, end, length, *series);
            *body += &text(LEFT + length + 6.0, end + 13.0, "start", &number(*value));
            end += BAR + 2.0;
        }
        let middle = f64::midpoint(y, end) + 4.0;
        *body += &text(LEFT - 8.0, middle, "end", &self.label);
        end + GAP
    }
}

fn bar(x: f64, y: f64, length: f64, series: Series) -> String {
    let colour = series.colour();
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n"
    )
}

pub(super) fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    let words = escape(words);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}

/// Three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        below if below < 10.0 => format!("{value:.2}"),
        below if below < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Escapes text for elements and attributes (XML 1.0, 2.4).
pub(super) fn escape(words: &str) -> String {
    let mut escaped = String::new();
    for character in words.chars() {
        match character {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            control if control.is_control() => {}
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    /// Prints the elements, and fails if the document is not well-formed.
    const PARSER: &str = "import sys, xml.etree.ElementTree as tree\n\
        root = tree.fromstring(sys.stdin.read())\n\
        name = '{http://www.w3.org/2000/svg}'\n\
        print(root.tag == name + 'svg', len(root.findall(name + 'rect')))\n\
        for text in root.findall(name + 'text'): print(text.text)";

    #[test]
    fn another_parser_reads_the_chart() {
        let bars = |ours, theirs| vec![(Series::Ours, ours), (Series::Theirs, theirs)];
        let group = |label: &str, bars| Group {
            label: label.to_owned(),
            bars,
        };
        let chart = Chart {
            title: "Files & <more>".to_owned(),
            unit: "GB/s".to_owned(),
            groups: vec![
                group("\"one\"", bars(2.5, 1.25)),
                group("two", bars(0.0, 100.0)),
            ],
        };
        let parsed = Client::new("python3")
            .args(["-c", PARSER])
            .input(chart.svg())
            .run()
            .unwrap();
        let output = parsed.output();
        assert!(parsed.status.success(), "{parsed}");
        // Four bars, and one for each of the two in the legend.
        assert!(output.starts_with("True 6\n"), "{output}");
        for words in ["Files & <more>, GB/s", "\"one\"", "2.50", "100", "gridhaul"] {
            assert!(
                output.lines().any(|line| line == words),
                "{words}: {output}"
            );
        }
    }

    #[test]
    fn an_empty_chart_has_a_size() {
        let chart = Chart {
            title: String::new(),
            unit: String::new(),
            groups: Vec::new(),
        };
        assert!(chart.svg().contains("height=\"66\""));
    }
}
