//! Logins: `USER` and `PASS`.
//!
//! ```text
//! state            Login: USER, PASS, and what became of them
//!   ├─ admission   what the client may use, by its certificate, password or local account
//!   └─ attach      opens the files of the user
//! ```

mod admission;
mod attach;
mod state;

pub(super) use admission::{Admitted, admit_by_certificate, admit_by_name, grant_of_anonymous};
pub(super) use state::{Login, LoginCommand};
