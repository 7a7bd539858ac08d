//! The program `gridhaul` with our server and the real one.

mod copy;
mod site;
mod tree;
