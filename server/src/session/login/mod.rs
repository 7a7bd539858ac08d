//! Logins: `USER` and `PASS`.
//!
//! ```text
//! state            Login: USER, PASS, and what became of them
//!   ├─ admission   what the client may use, by its certificate, password or local account
//!   ├─ attach      opens the files of the user
//!   └─ refusal     why a login was refused
//! ```

mod admission;
mod attach;
mod refusal;
mod state;

pub(super) use admission::{Admitted, admit_by_certificate, admit_by_name, grant_of_anonymous};
pub(super) use refusal::Refusal;
pub(super) use state::{Login, LoginCommand};
