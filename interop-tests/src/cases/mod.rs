//! The interoperability cases: one table that runs against both servers.

mod case;
mod context;
mod report;
mod run;
mod setup;
pub mod table;
mod testbed;

pub use case::{Case, Observation};
pub use context::Context;
pub use report::Report;
pub use run::{Outcome, Row, Verdict, run};
pub use setup::{Partners, Role, Setup};
pub use testbed::Testbed;
