//! A file of a server that receives a copy: what of it a restart continues, and whether the result is right.
//!
//! A file that is longer than the source is never continued: a restart does not shorten it. The known ranges count in an unfinished
//! file, which belongs to the copy; in a file with the name of the copy they are compared too, because it may be another one.

use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;
use std::time::Duration;

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::UploadForm;

use super::super::error::CopyError;
use super::super::present::Present;
use super::super::version::Version;
use super::found::{Content, Contents, equal_ones, search};
use crate::control::ControlError;
use crate::session::Session;

/// The file of a server that a restart continues.
struct Leftover {
    path: PathArgument,
    size: u64,
    /// It has the name of the copy, not that of an unfinished one.
    is_final: bool,
    /// There is also a file with the name of the copy, which a server without temporary names continues.
    is_doubtful: bool,
}

impl Leftover {
    async fn find(
        session: &mut Session,
        path: &PathArgument,
        form: UploadForm,
    ) -> Result<Option<Self>, ControlError> {
        let temporary = form.unfinished(path.as_path());
        let temporary =
            temporary.and_then(|temporary| PathArgument::new(temporary.as_os_str().as_bytes()));
        let Some(temporary) = temporary else {
            return Ok(None);
        };
        let unfinished = size_there(session, &temporary).await?;
        let complete = size_there(session, path).await?;
        Ok(match (unfinished, complete) {
            (Some(size), other) => Some(Self {
                path: temporary,
                size,
                is_final: false,
                is_doubtful: other.is_some(),
            }),
            (None, Some(size)) => Some(Self {
                path: path.clone(),
                size,
                is_final: true,
                is_doubtful: false,
            }),
            (None, None) => None,
        })
    }
}

/// `None` if the server does not say it: there is no file, or it has no `SIZE`.
async fn size_there(
    session: &mut Session,
    path: &PathArgument,
) -> Result<Option<u64>, ControlError> {
    match session.size(path).await {
        Err(ControlError::Refused { .. }) => Ok(None),
        size => size,
    }
}

/// A file of a server that receives a copy of this version.
pub(super) struct Receiving<'a> {
    session: &'a mut Session,
    path: &'a PathArgument,
    version: Version,
    /// Without an equal byte, comparisons take so long together.
    within: Duration,
}

/// On the heap: the callers have no room for it on the stack of a thread.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, CopyError>> + Send + 'a>>;

impl<'a> Receiving<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        path: &'a PathArgument,
        version: Version,
        within: Duration,
    ) -> Self {
        Self {
            session,
            path,
            version,
            within,
        }
    }

    /// Finds out what it has. Returns whether the server may continue another file than the one that was looked at.
    pub(super) fn search(
        self,
        present: &'a mut Present,
        form: UploadForm,
        source: Content<'a>,
    ) -> Boxed<'a, bool> {
        Box::pin(self.searched(present, form, source))
    }

    async fn searched(
        self,
        present: &mut Present,
        form: UploadForm,
        source: Content<'_>,
    ) -> Result<bool, CopyError> {
        if !present.may_have_more() {
            present.forget();
            return Ok(false);
        }
        let found = Leftover::find(self.session, self.path, form).await;
        let found = found
            .map_err(CopyError::Destination)?
            .filter(|found| Some(found.size) <= self.version.size)
            .filter(|found| present.ranges().end() <= found.size);
        let Some(found) = found else {
            present.forget();
            return Ok(false);
        };
        let there = Content::There(self.session, found.path);
        let mut ends = Contents::new(source, there, self.within);
        if found.is_final {
            let equal = equal_ones(present.ranges(), &mut ends).await;
            present.set(equal);
        }
        let more = search(present.ranges(), found.size, &mut ends).await;
        present.gain(&more);
        Ok(found.is_doubtful)
    }

    /// Checks a file that both ends call complete. Its size was compared with that of the source.
    pub(super) fn check(self, ranges: Doubtful<'a>, source: Content<'a>) -> Boxed<'a, ()> {
        Box::pin(self.checked(ranges, source))
    }

    async fn checked(self, ranges: Doubtful<'_>, source: Content<'_>) -> Result<(), CopyError> {
        let continued = ranges.continued.filter(|ranges| !ranges.is_empty());
        if continued.is_none() && ranges.unproven.is_empty() {
            return Ok(());
        }
        let there = Content::There(self.session, self.path.clone());
        let mut ends = Contents::new(source, there, self.within);
        if let Some(continued) = continued
            && equal_ones(continued, &mut ends).await != *continued
        {
            return Err(CopyError::Continued);
        }
        let unproven = in_few_ranges(ranges.unproven);
        if equal_ones(&unproven, &mut ends).await != unproven {
            return Err(CopyError::Unproven);
        }
        Ok(())
    }
}

/// The ranges of a complete file whose content is compared.
pub(super) struct Doubtful<'a> {
    /// The file was continued from these ranges, and there was another one that may have been continued instead.
    pub(super) continued: Option<&'a RangeSet>,
    /// They may be holes ([`Transferred::unproven`](crate::transfer::Transferred::unproven)).
    pub(super) unproven: &'a RangeSet,
}

/// These ranges, or one with all of them if they are so many that each comparison would be a long wait.
fn in_few_ranges(ranges: &RangeSet) -> RangeSet {
    const MANY: usize = 64;

    match (ranges.len() > MANY, ranges.iter().next()) {
        (true, Some(first)) => RangeSet::from(first.start..ranges.end()),
        _ => ranges.clone(),
    }
}
