//! Complete transfers through the data node interface, over real sockets.

mod checksums;
mod copies;
mod handshakes;
mod inline;
mod peers;
mod site;
mod uploads;
