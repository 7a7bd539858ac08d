//! A session that starts in the front process and continues in the serving process, and returns with `REIN`.

mod front;
mod serving;
