//! Complete transfers through the data node interface, over real sockets.

mod checksums;
mod cluster;
mod copies;
mod handshakes;
mod inline;
mod limit;
mod peers;
mod share_failures;
mod shares;
mod site;
mod unnamed;
mod uploads;
