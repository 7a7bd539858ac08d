//! The rows of the benchmark, by topic.

mod checksums;
mod copies;
mod crowd;
mod distance;
mod idle;
mod listing;
mod logins;
mod servers;

use super::row::Row;

/// All rows, in the order in which they run.
pub fn all() -> Vec<Row> {
    let mut rows = servers::rows();
    rows.extend(copies::rows());
    rows.extend(servers::protected_rows());
    rows.extend(copies::protected_rows());
    rows.extend(logins::rows());
    rows.extend(servers::disk_rows());
    rows.extend(copies::small_rows());
    rows.extend(crowd::rows());
    rows.extend(checksums::rows());
    rows.extend(listing::rows());
    rows.extend(distance::rows());
    rows.extend(idle::rows());
    rows
}
