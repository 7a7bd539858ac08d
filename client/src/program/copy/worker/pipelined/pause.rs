//! When files are not copied in pipelines, because these were of no use.
//!
//! A pipeline whose first file fails has cost two sessions, and that file is copied again. Where all files fail, that would be the cost of
//! each one. So after some such pipelines the next files are copied one by one, and then one more pipeline is tried: the files of another
//! directory may be better.

/// After so many pipelines in a row without a complete file there is a pause.
const FRUITLESS: usize = 3;

/// The files of the first pause. Each further one has twice as many.
const FIRST: usize = 16;

/// The files of the longest pause.
const LONGEST: usize = 1024;

/// The pauses of a worker.
#[derive(Debug)]
pub(in super::super) struct Pause {
    /// Pipelines in a row without a complete file.
    fruitless: usize,
    /// The files of the present pause that have not come yet.
    left: usize,
    /// The files of the next pause.
    next: usize,
}

impl Pause {
    /// Before the first pipeline.
    pub(in super::super) fn new() -> Self {
        Self {
            fruitless: 0,
            left: 0,
            next: FIRST,
        }
    }

    /// Whether the next file is one of the present pause.
    pub(super) fn has_file(&mut self) -> bool {
        let is_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_one
    }

    /// A pipeline has ended; whether it was of use.
    pub(super) fn note(&mut self, is_of_use: bool) {
        if is_of_use {
            *self = Self::new();
            return;
        }
        self.fruitless += 1;
        if self.fruitless >= FRUITLESS {
            self.left = self.next;
            self.next = (self.next * 2).min(LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files up to the next pipeline.
    fn alone(pause: &mut Pause) -> usize {
        (0..).take_while(|_| pause.has_file()).count()
    }

    #[test]
    fn pauses_become_longer_until_a_pipeline_is_of_use() {
        let mut pause = Pause::new();
        let after = [false; 12].map(|is_of_use| {
            pause.note(is_of_use);
            alone(&mut pause)
        });
        let expected = [0, 0, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 1024];
        assert_eq!(after, expected);
        pause.note(true);
        assert_eq!(alone(&mut pause), 0);
        let again = [false; 3].map(|is_of_use| {
            pause.note(is_of_use);
            alone(&mut pause)
        });
        assert_eq!(again, [0, 0, 16]);
    }
}
