//! The program `gridhaul` with our server and the real one.

mod copy;
mod resume;
mod site;
mod tree;
