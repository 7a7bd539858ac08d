//! The parts of Markdown that the tests of the documentation need: headings, links, code spans and code blocks.

use std::fs;
use std::path::{Path, PathBuf};

/// The line before a block of commands that a test executes.
const RUNS: &str = "<!-- runs -->";

/// A page of the documentation.
#[derive(Debug)]
pub(crate) struct Page {
    /// Relative to the top directory.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Text(String),
    Code {
        text: String,
        /// The block follows [`RUNS`].
        runs: bool,
        block: usize,
    },
}

impl Page {
    pub(crate) fn read(top: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let name = path.strip_prefix(top).unwrap_or(path);
        Self {
            name: name.display().to_string(),
            path: path.to_owned(),
            lines: parse(&text),
        }
    }

    fn text(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Text(text) => Some(text.as_str()),
            Line::Code { .. } => None,
        })
    }

    /// The identifiers that forges and mdbook give to headings: lower case, hyphens for spaces, no punctuation.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for heading in self.text().filter(|line| line.starts_with('#')) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let anchor: String = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let again = (1..).map(|count| format!("{anchor}-{count}"));
            let unused = [anchor.clone()].into_iter().chain(again);
            let unused = unused.into_iter().find(|name| !anchors.contains(name));
            anchors.extend(unused);
        }
        anchors
    }

    /// The targets of links and images, outside of code.
    pub(crate) fn links(&self) -> Vec<String> {
        let mut links = Vec::new();
        for line in self.text() {
            let prose: String = line.split('`').step_by(2).collect();
            links.extend(prose.split("](").skip(1).filter_map(|rest| {
                let (target, _) = rest.split_once(')')?;
                Some(target.to_owned())
            }));
        }
        links
    }

    /// The code spans in lines of text.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &str> {
        self.text()
            .flat_map(|line| line.split('`').skip(1).step_by(2))
    }

    /// The lines of code blocks.
    pub(crate) fn code(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Code { text, .. } => Some(text.as_str()),
            Line::Text(_) => None,
        })
    }

    /// The blocks of commands that are marked as executable.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut commands: Vec<(usize, String)> = Vec::new();
        for line in &self.lines {
            let Line::Code {
                text,
                runs: true,
                block,
            } = line
            else {
                continue;
            };
            if commands.last().is_none_or(|(last, _)| last != block) {
                commands.push((*block, String::new()));
            }
            if let Some((_, script)) = commands.last_mut() {
                script.push_str(text);
                script.push('\n');
            }
        }
        commands.into_iter().map(|(_, script)| script).collect()
    }

    /// The cells of the rows of tables.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        let rows = self.text().filter(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
    }
}

fn parse(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut block = 0;
    let mut in_fence = false;
    let mut runs = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            block += 1;
            runs &= in_fence;
        } else if in_fence || line.starts_with("    ") {
            lines.push(Line::Code {
                text: line.to_owned(),
                runs: runs && in_fence,
                block,
            });
        } else {
            runs = line.trim() == RUNS;
            lines.push(Line::Text(line.to_owned()));
        }
    }
    lines
}
