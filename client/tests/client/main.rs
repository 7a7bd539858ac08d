//! The program `gridhaul` with our server and the real one.

mod copy;
mod guc;
mod hostile;
mod resume;
mod site;
mod tree;
