//! Processes that are killed and networks that are cut during transfers over data nodes.
//!
//! ```text
//!   campaign     rounds with seeds, and their summary
//!     └─> round      one transfer, one fault, and the checks behind it
//!           ├─> world       nodes, control servers, and the network between them (cut)
//!           ├─> transfer    the clients: MODE E with restarts, and globus-url-copy
//!           ├─> steady      sessions beside it, which must not notice
//!           └─> remains     what nodes still hold
//!   copies       `gridhaul copy`, killed and resumed: a campaign of its own (site: servers, files, and what they hold)
//! ```

mod campaign;
mod copies;
mod cut;
mod dice;
mod remains;
mod round;
mod steady;
mod transfer;
mod world;

pub use campaign::{Campaign, Summary};
pub use copies::{CopyCampaign, CopySummary, Mirror, Moment, Played, Script, Victim, Way};
