//! The ends of the cable between two guests.

/// The variable by which a test program detects that it runs in a guest. Its value is `left`, `right` or `both`.
pub(super) const MARK: &str = "GRIDHAUL_GUEST";

/// An end of a cable between two guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub(super) fn name_and_hardware_address(self) -> (&'static str, &'static str) {
        match self {
            Self::Left => ("left", "02:00:00:00:00:01"),
            Self::Right => ("right", "02:00:00:00:00:02"),
        }
    }
}

pub(super) fn mark_of(end: Option<End>) -> &'static str {
    end.map_or("both", |end| end.name_and_hardware_address().0)
}
