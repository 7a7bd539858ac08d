//! Units that a source holds.

use crate::shared::Shared;
use crate::source::Source;

/// Units that a source holds. Dropping the grant returns them to the pool.
#[derive(Debug)]
#[must_use = "dropping it returns the units"]
pub struct Grant {
    shared: Shared,
    source: Source,
    units: usize,
}

impl Grant {
    /// `units` must be counted for `source` already.
    pub(crate) fn new(shared: Shared, source: Source, units: usize) -> Self {
        Self {
            shared,
            source,
            units,
        }
    }

    /// The number of units.
    pub fn units(&self) -> usize {
        self.units
    }

    /// The source that the units are counted for.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns all but `units`.
    pub fn shrink(&mut self, units: usize) {
        let surplus = self.units.saturating_sub(units);
        self.give_back(surplus);
    }

    /// Moves up to `units` to a separate grant.
    pub fn split(&mut self, units: usize) -> Self {
        let units = units.min(self.units);
        self.units -= units;
        Self::new(self.shared.clone(), self.source.clone(), units)
    }

    fn give_back(&mut self, units: usize) {
        if units > 0 {
            self.units -= units;
            self.shared
                .change(|state| state.give_back(&self.source, units));
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back(self.units);
    }
}
