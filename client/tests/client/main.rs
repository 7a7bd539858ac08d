//! The program `gridhaul` with our server and the real one.

mod copy;
mod ftps;
mod hostile;
mod passwords;
mod scripted;
mod site;
mod sshftp;
mod tree;
