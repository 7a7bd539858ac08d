//! Lines at a terminal for the data channels of files, or for the stripes between two servers.
//!
//! A peer chooses how many there are. So all files together have a limited number of lines, and one more line counts the others.

use std::sync::Mutex;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::super::output::locked;

/// The lines of all files together.
const MOST: usize = 16;

/// A channel or stripe.
const PART: &str = "  {wide_msg} {decimal_bytes:>10} {decimal_bytes_per_sec:>12}";

/// The number of the others.
const MORE: &str = "  {wide_msg}";

/// What the parts of a transfer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    /// Data channels of this machine.
    Channels,
    /// Stripes between two servers.
    Stripes,
}

/// The lines of all files.
pub(super) struct PartLines {
    multi: MultiProgress,
    /// The bar for all files, which stays behind the lines.
    all: ProgressBar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Lines on the screen.
    shown: usize,
    /// Parts without a line.
    hidden: usize,
    more: Option<ProgressBar>,
}

/// The lines of a file.
pub(super) struct PartBars<'a> {
    lines: &'a PartLines,
    bars: Vec<ProgressBar>,
    hidden: usize,
}

impl PartLines {
    pub(super) fn new(multi: MultiProgress, all: ProgressBar) -> Self {
        Self {
            multi,
            all,
            state: Mutex::default(),
        }
    }

    /// The lines of another file: none yet.
    pub(super) fn of_file(&self) -> PartBars<'_> {
        PartBars {
            lines: self,
            bars: Vec::new(),
            hidden: 0,
        }
    }

    /// Whether there is room for one line more, which is then taken.
    fn take(&self) -> bool {
        let mut state = locked(&self.state);
        let has_room = state.shown < MOST;
        state.shown += usize::from(has_room);
        has_room
    }

    /// `before` parts of a file had no line, and `now` have none.
    fn hide(&self, before: usize, now: usize) {
        if before == now {
            return;
        }
        let mut state = locked(&self.state);
        state.hidden = (state.hidden + now).saturating_sub(before);
        if state.hidden == 0 {
            if let Some(more) = state.more.take() {
                self.remove(&more);
            }
            return;
        }
        let words = format!("… {} more", state.hidden);
        let more = state.more.get_or_insert_with(|| {
            let more = ProgressBar::no_length().with_style(style(MORE));
            self.multi.insert_before(&self.all, more)
        });
        more.set_message(words);
    }

    fn remove(&self, line: &ProgressBar) {
        line.finish_and_clear();
        self.multi.remove(line);
    }
}

impl PartBars<'_> {
    /// Shows the bytes of each part beneath the bar of the file.
    pub(super) fn show(&mut self, file: &ProgressBar, parts: Parts, bytes: &[u64]) {
        while self.bars.len() < bytes.len() && self.lines.take() {
            let bar = ProgressBar::no_length().with_style(style(PART));
            let above = self.bars.last().unwrap_or(file);
            let bar = self.lines.multi.insert_after(above, bar);
            let number = self.bars.len() + 1;
            bar.set_message(match parts {
                Parts::Channels => format!("channel {number}"),
                Parts::Stripes => format!("stripe {number}"),
            });
            self.bars.push(bar);
        }
        for (bar, bytes) in self.bars.iter().zip(bytes) {
            bar.set_position(*bytes);
        }
        let hidden = bytes.len().saturating_sub(self.bars.len());
        self.lines.hide(self.hidden, hidden);
        self.hidden = hidden;
    }

    /// Removes the lines.
    pub(super) fn remove(&mut self) {
        for bar in self.bars.drain(..) {
            self.lines.remove(&bar);
            locked(&self.lines.state).shown -= 1;
        }
        self.lines.hide(self.hidden, 0);
        self.hidden = 0;
    }
}

/// The templates are constants, which tests build.
pub(super) fn style(template: &'static str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressDrawTarget;

    use super::*;

    #[test]
    fn the_templates_are_sound() {
        for template in [PART, MORE] {
            ProgressStyle::with_template(template).expect(template);
        }
    }

    #[test]
    fn all_files_together_have_a_limited_number_of_lines() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let all = multi.add(ProgressBar::new(0));
        let lines = PartLines::new(multi.clone(), all.clone());
        let files = [0, 1].map(|_| multi.insert_before(&all, ProgressBar::new(0)));
        let more = || {
            let state = locked(&lines.state);
            state.more.as_ref().map(ProgressBar::message)
        };
        let (mut one, mut other) = (lines.of_file(), lines.of_file());
        one.show(&files[0], Parts::Channels, &[7; 10]);
        assert_eq!((one.bars.len(), more()), (10, None));
        assert_eq!(one.bars[9].message(), "channel 10");
        assert_eq!(one.bars[9].position(), 7);
        other.show(&files[1], Parts::Stripes, &[1; 20]);
        assert_eq!(other.bars.len(), MOST - 10);
        assert_eq!(more().as_deref(), Some("… 14 more"));
        // What the first file leaves is used.
        one.remove();
        other.show(&files[1], Parts::Stripes, &[2; 20]);
        assert_eq!((other.bars.len(), other.bars[15].position()), (MOST, 2));
        assert_eq!(other.bars[15].message(), "stripe 16");
        assert_eq!(more().as_deref(), Some("… 4 more"));
        other.remove();
        assert_eq!(more(), None);
        assert_eq!(locked(&lines.state).shown, 0);
    }
}
