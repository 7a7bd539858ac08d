//! Tables in Markdown, and their cells.

/// A table of Markdown.
pub(in crate::bench) fn table<const COLUMNS: usize>(
    heading: [&str; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
) -> String {
    let line = |cells: [String; COLUMNS]| {
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        format!("| {} |\n", cells.join(" | "))
    };
    let mut table = line(heading.map(str::to_owned));
    table += &format!("|{}\n", "---|".repeat(COLUMNS));
    rows.into_iter().for_each(|row| table += &line(row));
    table
}

/// A share as a percentage with one decimal.
pub(in crate::bench) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
