//! The progress of a copy at a terminal: a bar for all files, and one for each of those that are copied at present, with a line for each
//! of its channels or stripes if that is wanted.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};

use super::super::output;
use super::Totals;
use super::part_bars::{PartBars, PartLines, Parts, style};

/// The files that have a bar at a time; the bar for all counts the others too.
const MOST_FILES: u64 = 8;

/// A file of unknown size: its bytes, and no share.
const UNSIZED: &str = "{wide_msg} {decimal_bytes:>10} {decimal_bytes_per_sec:>12}";

/// A file of known size, or all files when all of them are found.
const SIZED: &str = "{wide_msg} {percent:>3}% {bar:20} {decimal_bytes_per_sec:>12} {eta:>4} left";

/// All files, while more are found.
const GROWING: &str = "{wide_msg} {decimal_bytes:>10} {decimal_bytes_per_sec:>12} {elapsed:>4}";

/// The bars of a copy.
pub(super) struct Bars {
    multi: MultiProgress,
    all: ProgressBar,
    found: AtomicU64,
    is_complete: AtomicBool,
    /// A file that was found has no known size, so that there is no share of all bytes.
    is_unsized: AtomicBool,
    found_bytes: AtomicU64,
    /// Bytes of the files that are copied at present.
    moving: AtomicU64,
    shown_files: Mutex<u64>,
    part_lines: PartLines,
}

/// The bar of a file, until it is dropped.
pub(super) struct FileBar<'a> {
    bars: &'a Bars,
    /// `None` if too many files have one.
    bar: Option<ProgressBar>,
    parts: PartBars<'a>,
    moved: u64,
}

impl Bars {
    /// `None` if standard error is no terminal, or one that cannot move its cursor.
    pub(super) fn at_terminal() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if is_dumb || !io::stderr().is_terminal() {
            return None;
        }
        Some(Self::on(ProgressDrawTarget::stderr()))
    }

    fn on(target: ProgressDrawTarget) -> Self {
        let multi = MultiProgress::with_draw_target(target);
        let all = multi.add(ProgressBar::new(0).with_style(style(GROWING)));
        output::write_above(Some(multi.clone()));
        Self {
            part_lines: PartLines::new(multi.clone(), all.clone()),
            multi,
            all,
            found: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
            is_unsized: AtomicBool::new(false),
            found_bytes: AtomicU64::new(0),
            moving: AtomicU64::new(0),
            shown_files: Mutex::default(),
        }
    }

    /// A file that is to be copied.
    pub(super) fn finds(&self, size: Option<u64>) {
        self.found.fetch_add(1, Ordering::Relaxed);
        match size {
            Some(size) => {
                self.found_bytes.fetch_add(size, Ordering::Relaxed);
            }
            None => self.is_unsized.store(true, Ordering::Relaxed),
        }
    }

    /// There are no more files.
    pub(super) fn found_all(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
        if !self.is_unsized.load(Ordering::Relaxed) {
            self.all.set_style(style(SIZED));
        }
    }

    /// Shows what is complete, and what moves.
    pub(super) fn show(&self, totals: &Totals) {
        let found = self.found.load(Ordering::Relaxed);
        let more = match self.is_complete.load(Ordering::Relaxed) {
            true => "",
            false => "+",
        };
        let failed = match totals.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let done = totals.files;
        self.all
            .set_message(format!("{done} of {found}{more} files{failed}"));
        self.all
            .set_length(self.found_bytes.load(Ordering::Relaxed));
        let moving = self.moving.load(Ordering::Relaxed);
        self.all.set_position(totals.bytes.saturating_add(moving));
    }

    /// The bar of a file that is copied now.
    pub(super) fn file(&self, source: &str, size: Option<u64>) -> FileBar<'_> {
        let mut shown = output::locked(&self.shown_files);
        let bar = (*shown < MOST_FILES).then(|| {
            *shown += 1;
            let bar = match size {
                Some(size) => ProgressBar::new(size).with_style(style(SIZED)),
                None => ProgressBar::no_length().with_style(style(UNSIZED)),
            };
            let bar = self.multi.insert_before(&self.all, bar);
            bar.set_message(output::shown(source.as_bytes()));
            bar
        });
        FileBar {
            bars: self,
            bar,
            parts: self.part_lines.of_file(),
            moved: 0,
        }
    }

    /// Removes the bars.
    pub(super) fn end(&self) {
        output::write_above(None);
        self.all.finish_and_clear();
        // What is left of a defect must not stay on the screen.
        let _ = self.multi.clear();
    }
}

impl FileBar<'_> {
    pub(super) fn moved(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.moved);
        self.moved += more;
        self.bars.moving.fetch_add(more, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(self.moved);
        }
    }

    /// Shows the bytes of each channel or stripe beneath the bar.
    pub(super) fn show_parts(&mut self, parts: Parts, bytes: &[u64]) {
        if let Some(bar) = &self.bar {
            self.parts.show(bar, parts, bytes);
        }
    }
}

impl Drop for FileBar<'_> {
    fn drop(&mut self) {
        self.bars.moving.fetch_sub(self.moved, Ordering::Relaxed);
        self.parts.remove();
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.bars.multi.remove(&bar);
            *output::locked(&self.bars.shown_files) -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressStyle;

    use super::*;

    #[test]
    fn the_templates_are_sound() {
        for template in [UNSIZED, SIZED, GROWING] {
            ProgressStyle::with_template(template).expect(template);
        }
    }

    #[test]
    fn bytes_that_move_count_once() {
        let bars = Bars::on(ProgressDrawTarget::hidden());
        bars.finds(Some(100));
        bars.finds(Some(50));
        bars.found_all();
        let mut totals = Totals::default();
        let mut file = bars.file("a", Some(100));
        file.moved(60);
        file.moved(100);
        bars.show(&totals);
        assert_eq!((bars.all.position(), bars.all.length()), (100, Some(150)));
        assert_eq!(bars.all.message(), "0 of 2 files");
        drop(file);
        (totals.files, totals.bytes, totals.failed) = (1, 100, 1);
        bars.show(&totals);
        assert_eq!(bars.all.position(), 100);
        assert_eq!(bars.all.message(), "1 of 2 files, 1 failed");
        let many: Vec<_> = (0..20).map(|_| bars.file("b", None)).collect();
        let shown = many.iter().filter(|file| file.bar.is_some()).count();
        assert_eq!(shown as u64, MOST_FILES);
        drop(many);
        assert_eq!(*output::locked(&bars.shown_files), 0);
        bars.end();
    }
}
