//! The commands that ask about files.

use gridhaul_protocol::command::AlgorithmName;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;

use super::checksum::answer_checksum;
use super::control_listing::list_on_control;
use super::metadata::{facts, modified, size, status};
use crate::session::call::Call;
use crate::session::end::End;

#[derive(Debug)]
pub(crate) enum QueryCommand {
    /// `SIZE`.
    Size(PathArgument),
    /// `MDTM`.
    Modified(PathArgument),
    /// `MLST`.
    Facts(Option<PathArgument>),
    /// `STAT` of a path.
    Status(PathArgument),
    /// `MLSC`.
    List(Option<PathArgument>),
    /// `CKSM`.
    Checksum {
        algorithm: AlgorithmName,
        offset: u64,
        length: Option<u64>,
        path: PathArgument,
    },
}

impl QueryCommand {
    /// Whether `ABOR` ends it while it waits to be carried out.
    pub(crate) fn takes_long(&self) -> bool {
        matches!(self, Self::List(_) | Self::Checksum { .. })
    }

    /// Carries the command out. Returns its reply, unless that was sent piece by piece.
    pub(crate) async fn execute(self, call: &mut Call<'_>) -> Result<Option<Reply>, End> {
        match self {
            Self::Size(path) => size(call, &path).await.map(Some),
            Self::Modified(path) => modified(call, &path).await.map(Some),
            Self::Facts(path) => facts(call, path).await.map(Some),
            Self::Status(path) => status(call, &path).await.map(Some),
            Self::List(path) => list_on_control(call, path.as_ref()).await,
            Self::Checksum {
                algorithm,
                offset,
                length,
                path,
            } => {
                let part = (offset, length);
                let reply = answer_checksum(call, &algorithm, part, &path);
                reply.await.map(Some)
            }
        }
    }
}
