//! A section of a page: a text, a table, plots, and targets.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plot::Plot;

/// A section of a page. A guest measures sections and the host writes them, so a section can be serialised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The title.
    pub title: String,
    /// The method, the corresponding figure of a paper, and the meaning of the numbers.
    pub description: String,
    /// A table in Markdown.
    pub table: String,
    /// The targets of the section.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Plots of the table.
    #[serde(default)]
    pub pictures: Vec<Picture>,
}

/// A target and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The target as text.
    pub wanted: String,
    /// The result as text.
    pub found: String,
    /// Whether the target is met.
    pub is_met: bool,
}

/// A plot and the name of its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The name of the file beside the page.
    pub name: String,
    /// The plot.
    pub plot: Plot,
}

impl Section {
    /// Whether all targets are met.
    pub fn is_met(&self) -> bool {
        self.targets.iter().all(|target| target.is_met)
    }

    /// The section in Markdown.
    pub fn text(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.description);
        for Picture { name, plot } in &self.pictures {
            text += &format!("![{}]({name})\n\n", plot.title);
        }
        text += &self.table;
        if !self.targets.is_empty() {
            text.push('\n');
        }
        for target in &self.targets {
            let verdict = if target.is_met { "met" } else { "**MISSED**" };
            text += &format!("- {}: {}, {verdict}\n", target.wanted, target.found);
        }
        text
    }
}

/// Writes a page that ends with notes, and its plots, to a directory, which is made if it does not exist.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(
    directory: &Path,
    page: &str,
    introduction: &str,
    sections: &[Section],
    notes: &str,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut text = introduction.to_owned();
    for section in sections {
        for Picture { name, plot } in &section.pictures {
            fs::write(directory.join(name), plot.svg())?;
        }
        text += &format!("\n{}", section.text());
    }
    fs::write(directory.join(page), text + notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::plot::{Axis, PlotLine};

    fn section(is_met: bool) -> Section {
        let line = PlotLine {
            name: "ours".to_owned(),
            is_model: false,
            points: vec![[0.0, 1.5]],
        };
        let plot = Plot {
            title: "Rate".to_owned(),
            horizontal: Axis::steps("message", ["64 KiB", "1 MiB"]),
            vertical: "MB/s".to_owned(),
            lines: vec![line],
        };
        Section {
            title: "A \"question\"".to_owned(),
            description: "Of what.".to_owned(),
            table: "| a | b |\n|---|---|\n".to_owned(),
            targets: vec![Target {
                wanted: "at least 2".to_owned(),
                found: "1.5".to_owned(),
                is_met,
            }],
            pictures: vec![Picture {
                name: "rate.svg".to_owned(),
                plot,
            }],
        }
    }

    #[test]
    fn a_page_has_all_parts_of_its_sections() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        let sections = [section(true), section(false)];
        write(&below, "page.md", "# Title\n", &sections, "\nNotes.\n").unwrap();
        let page = fs::read_to_string(below.join("page.md")).unwrap();
        let part = "\n## A \"question\"\n\nOf what.\n\n![Rate](rate.svg)\n\n| a | b |\n|---|---|\n\n- at least 2: 1.5, ";
        assert_eq!(
            page,
            format!("# Title\n{part}met\n{part}**MISSED**\n\nNotes.\n")
        );
        let picture = fs::read_to_string(below.join("rate.svg")).unwrap();
        assert!(picture.contains(">64 KiB<"), "{picture}");
        assert!(sections[0].is_met() && !sections[1].is_met());
    }

    #[test]
    fn a_section_can_be_serialised() {
        let section = section(false);
        let text = toml::to_string(&section).unwrap();
        assert_eq!(toml::from_str::<Section>(&text).unwrap(), section, "{text}");
    }
}
