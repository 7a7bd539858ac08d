//! Whether data channels over RDMA work between this machine and a server, and over what.
//!
//! Only an open channel shows that: each end knows its own devices only, and the ends choose when a channel opens. So the home directory
//! is listed over one.

use std::time::Duration;

use gridhaul_protocol::command::{Command, SiteCommand, StackRequest, Text};
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use serde::Serialize;
use tokio::time::timeout;

use super::super::arguments::RDMA_DRIVER;
use crate::control::ControlError;
use crate::listing::{Lister, ListingError, ListingSettings};
use crate::local::{LocalConfig, LocalMachine, rdma_findings};
use crate::session::Session;
use crate::transfer::Transferred;

/// How long the listing may take. Home directories may be large.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known about RDMA with a server.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// A data channel has worked.
    works: bool,
    /// Why not.
    reason: Option<String>,
    /// What carried the data here.
    here: Option<Carrier>,
    /// What carried the data at the server, and why, by its own words.
    server: Option<Carrier>,
    /// The providers and devices of this machine, with what they lack.
    providers: Vec<String>,
}

/// What carried the data at an end of the data channel.
#[derive(Debug, Serialize)]
struct Carrier {
    /// `soft` is iWARP by the program, `verbs` an adapter.
    provider: String,
    /// The adapter and its port.
    device: Option<String>,
    /// Why this one was chosen.
    why: String,
}

/// Tries a data channel. The session may be in the middle of a transfer afterwards.
pub(super) async fn verdict(
    session: &mut Session,
    how: &ListingSettings,
) -> Result<Verdict, ControlError> {
    let tried = match refusal(session).await? {
        Some(refusal) => Err(refusal),
        None => try_channel(session, how).await?,
    };
    let (ends, reason) = match tried {
        Ok([here, server]) => ((Some(here), Some(server)), None),
        Err(reason) => ((None, None), Some(reason)),
    };
    Ok(Verdict {
        works: reason.is_none(),
        reason,
        here: ends.0,
        server: ends.1,
        providers: rdma_findings(),
    })
}

/// Why the server does not allow the driver; `None` if it does.
async fn refusal(session: &mut Session) -> Result<Option<String>, ControlError> {
    let Some(name) = Text::new(RDMA_DRIVER) else {
        unreachable!("the name of a driver is a text");
    };
    let set = |request| Command::Site(SiteCommand::SetNetStack(request));
    let command = set(StackRequest::Drivers(name));
    match session.control().must(&command).await {
        Ok(_) => {}
        Err(error @ ControlError::Refused { .. }) => return Ok(Some(error.to_string())),
        Err(error) => return Err(error),
    }
    session.control().ask(&set(StackRequest::Default)).await?;
    Ok(None)
}

/// Lists the home directory over the driver. The inner error says why that is not possible.
async fn try_channel(
    session: &mut Session,
    how: &ListingSettings,
) -> Result<Result<[Carrier; 2], String>, ControlError> {
    let stack = StackSpec::only(RDMA_DRIVER);
    let mut how = how.clone();
    how.settings.stack = Some(stack.clone());
    how.stack = stack;
    let Ok(listed) = timeout(PATIENCE, list(session, &how)).await else {
        let seconds = PATIENCE.as_secs();
        return Ok(Err(format!(
            "the home directory was not listed within {seconds} s"
        )));
    };
    let done = match listed {
        Ok(done) => done,
        Err(ListingError::Server(error)) if !session.is_usable() => return Err(*error),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let command = Command::Site(SiteCommand::GetNetStack);
    let told = session.control().ask(&command).await?;
    Ok(Ok([Carrier::here(&done), Carrier::server(&told)]))
}

async fn list(session: &mut Session, how: &ListingSettings) -> Result<Transferred, ListingError> {
    let machine = LocalMachine::new(LocalConfig::default());
    let lister = Lister::new(&machine)?;
    let Some(home) = PathArgument::new(".") else {
        unreachable!("a dot is a path");
    };
    lister.receive(session, &home, how).await
}

impl Carrier {
    fn here(done: &Transferred) -> Self {
        let told = done.details.as_slice().iter().map(ToString::to_string);
        let told: Vec<String> = told.collect();
        let why = done.reason.clone().unwrap_or_default();
        Self::of(told.iter().map(String::as_str), &why)
    }

    fn server(reply: &Reply) -> Self {
        let lines = reply.inner().iter();
        let lines: Vec<String> = lines
            .map(|line| String::from_utf8_lossy(line).trim().to_owned())
            .collect();
        let lines = || lines.iter().map(String::as_str);
        let why = value(lines(), "why").unwrap_or_default();
        Self::of(lines(), &why)
    }

    fn of<'a>(told: impl Iterator<Item = &'a str> + Clone, why: &str) -> Self {
        Self {
            provider: value(told.clone(), "provider").unwrap_or_else(|| "unknown".to_owned()),
            device: value(told, "device"),
            why: why.to_owned(),
        }
    }

    fn text(&self) -> String {
        let device = self.device.as_ref();
        let device = device.map_or_else(String::new, |device| format!(", device {device}"));
        format!("provider {}{device}: {}", self.provider, self.why)
    }
}

/// The value of `name=value`.
fn value<'a>(mut told: impl Iterator<Item = &'a str>, name: &str) -> Option<String> {
    told.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .map(str::to_owned)
}

impl Verdict {
    /// The lines of the answer: names and texts.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let verdict = match &self.reason {
            None => "works: rput, rget and --stack rdma use it".to_owned(),
            Some(reason) => format!("no: {reason}"),
        };
        let mut lines = vec![("rdma", verdict)];
        let ends = [("  here", &self.here), ("  server", &self.server)];
        lines.extend(ends.into_iter().filter_map(|(name, end)| {
            let end = end.as_ref()?;
            Some((name, end.text()))
        }));
        let providers = self.providers.iter();
        lines.extend(providers.map(|provider| ("  this has", provider.clone())));
        lines
    }
}
