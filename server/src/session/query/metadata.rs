//! `SIZE`, `MDTM`, `MLST` and `STAT`.

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::time::TimeValue;
use jiff::Timestamp;

use crate::session::call::Call;
use crate::session::end::End;
use crate::session::listing::{self, Clock, Kind};
use crate::session::unfinished;

/// `SIZE`: also of directories, as in globus-gridftp-server 13.24, and of unfinished uploads.
pub(super) async fn size(call: &mut Call<'_>, path: &PathArgument) -> Result<Reply, End> {
    if let Err(refusal) = call.negotiated.check_size() {
        return Ok(refusal.reply());
    }
    let uploads = call.user.uploads;
    call.on_path(Some(path), move |files, path| {
        let size = unfinished::size(&*files.storage, path.as_path(), uploads)?;
        Ok(Reply::new(213, size.to_string()))
    })
    .await
}

/// `MDTM`.
pub(super) async fn modified(call: &mut Call<'_>, path: &PathArgument) -> Result<Reply, End> {
    call.on_path(Some(path), |files, path| {
        let found = files.storage.stat(path.as_path())?;
        let modified = Timestamp::try_from(found.modified).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Reply::new(213, TimeValue(modified).to_string()))
    })
    .await
}

/// `MLST`. The reply has the name as the client wrote it.
pub(super) async fn facts(call: &mut Call<'_>, path: Option<PathArgument>) -> Result<Reply, End> {
    let selection = call.negotiated.settings().facts;
    let given = path.clone();
    call.on_path(path.as_ref(), move |files, path| {
        let found = files.storage.stat(path.as_path())?;
        let directory = path.as_path().parent().unwrap_or(path.as_path());
        let name = given
            .as_ref()
            .map_or(path.as_bytes(), PathArgument::as_bytes);
        let link = listing::link_target(directory, &found);
        let mut line = Vec::new();
        if let Some(facts) = listing::facts(&found, Kind::Entry, link.as_deref()) {
            facts.append_line(&mut line, selection, name);
        }
        Ok(status_of(250, name, line))
    })
    .await
}

/// `STAT` of a path.
pub(super) async fn status(call: &mut Call<'_>, path: &PathArgument) -> Result<Reply, End> {
    let given = path.clone();
    call.on_path(Some(path), move |files, path| {
        let found = files.storage.stat(path.as_path())?;
        let mut line = Vec::new();
        listing::append_long(&mut line, &found, given.as_bytes(), &Clock::now());
        Ok(status_of(213, given.as_bytes(), line))
    })
    .await
}

fn status_of(code: u16, name: &[u8], line: Vec<u8>) -> Reply {
    Reply::spaced(code, [b"status of ", name].concat(), [line], "End.")
}
