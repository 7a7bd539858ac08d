//! Listings as the lines of a data channel.

use std::sync::Arc;

use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_storage::Storage;
use gridhaul_transfer::LineSource;

use super::lines::Style;
use super::stream::Listing;
use crate::threads::Listers;

/// The lines that `LIST`, `NLST`, `MLSD` and `MLSR` send over a data channel.
pub(crate) fn line_source(
    (storage, listers): (Arc<dyn Storage>, Listers),
    style: Style,
    path: RemotePath,
    given: Option<PathArgument>,
) -> LineSource {
    LineSource {
        open: Arc::new(move |_| {
            let given = given.as_ref().map(PathArgument::as_bytes);
            let storage = (Arc::clone(&storage), listers.clone());
            let listing = Listing::open(storage, style, path.as_path(), given)?;
            Ok(Box::new(listing))
        }),
    }
}
