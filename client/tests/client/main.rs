//! The program `gridhaul` with our server and the real one.

mod blocks;
mod config;
mod copy;
mod excess;
mod files;
mod ftps;
mod guc;
mod hostile;
mod lies;
mod lists;
mod parts;
mod passwords;
mod ping;
mod pipeline;
mod progress;
mod proxy;
mod rdma;
mod reach;
mod resume;
mod scripted;
mod site;
mod sshftp;
mod streams;
mod terminal;
mod tree;
mod trees;
