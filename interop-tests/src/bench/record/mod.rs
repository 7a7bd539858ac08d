//! The record of a run: pages with tables, and charts beside them.

mod markdown;
mod page;
pub mod plot;
pub mod section;
pub mod svg;

pub(super) use markdown::{percent, table};
pub use page::write;
