//! `gridhaul ping`.

mod rdma;

use std::time::{Duration, Instant, SystemTime};

use gridhaul_protocol::command::{Command, SiteCommand, StackRequest, Text};
use gridhaul_security::trust::Peer;
use jiff::Timestamp;
use serde::Serialize;

use super::Ending;
use super::arguments::{ChannelArguments, LoginArguments, PingArguments};
use super::files;
use super::output::{print, shown, shown_json, warn};
use super::servers::Servers;
use crate::control::ControlError;
use crate::location::{Server, Url};
use crate::session::Session;

/// How often the round trip is measured.
const ROUNDS: usize = 5;

/// The drivers that a server is asked for: all that are known of servers.
const DRIVERS: [&str; 5] = ["tcp", "splice", "auto", "rdma", "udt"];

/// What a server has said.
#[derive(Debug, Serialize)]
struct Answer {
    url: String,
    address: String,
    greeting: String,
    connect_seconds: f64,
    login_seconds: f64,
    /// The median.
    round_trip_seconds: f64,
    /// Who the user is for the server.
    identity: Option<Certificate>,
    /// Of the server: its own first, that of the authority last.
    certificates: Vec<Certificate>,
    drivers: Vec<&'static str>,
    features: Vec<String>,
    rdma: rdma::Verdict,
}

#[derive(Debug, Serialize)]
struct Certificate {
    subject: String,
    /// In UTC.
    expires: String,
    seconds_left: u64,
}

pub(super) async fn run(arguments: &PingArguments) -> Ending {
    let url = match Url::parse(&arguments.url) {
        Ok(url) => url,
        Err(error) => {
            warn(error);
            return Ending::Usage;
        }
    };
    let printed = match ping(&arguments.login, &url.server).await {
        // Strings and numbers always have a form in JSON.
        Ok(answer) if arguments.json => print(shown_json(&serde_json::json!(answer).to_string())),
        Ok(answer) => print(answer.text().trim_end()),
        Err(error) => {
            warn(error);
            return Ending::Failed;
        }
    };
    files::ended(printed.map_err(|error| format!("standard output: {error}")))
}

async fn ping(login: &LoginArguments, server: &Server) -> Result<Answer, String> {
    let opened = Servers::new(login.clone()).open(server).await;
    let mut session = opened.map_err(|error| error.to_string())?;
    let asked = ask(&mut session).await;
    let answer = asked.map_err(|error| format!("{server}: {error}"))?;
    // A listing that takes too long is still under way.
    if session.is_usable() {
        session.close().await;
    }
    Ok(answer)
}

async fn ask(session: &mut Session) -> Result<Answer, ControlError> {
    let round_trip = round_trip(session).await?;
    let drivers = drivers(session).await?;
    let how = ChannelArguments::plain().listings(session);
    let rdma = rdma::verdict(session, &how).await?;
    let welcome = session.welcome();
    let identity = session.login().identity().map(|identity| Certificate {
        subject: identity.credential.identity().one_line().to_owned(),
        ..Certificate::until(identity.credential.expires())
    });
    Ok(Answer {
        url: session.server().to_string(),
        greeting: welcome.greeting.clone(),
        connect_seconds: welcome.connected.as_secs_f64(),
        login_seconds: welcome.logged_in.as_secs_f64(),
        round_trip_seconds: round_trip.as_secs_f64(),
        identity,
        drivers,
        rdma,
        features: session.features().iter().map(ToString::to_string).collect(),
        address: session.control().peer().to_string(),
        certificates: session.control().server().map_or_else(Vec::new, chain),
    })
}

async fn round_trip(session: &mut Session) -> Result<Duration, ControlError> {
    let mut rounds = [Duration::ZERO; ROUNDS];
    for round in &mut rounds {
        let started = Instant::now();
        // An error is an answer, too.
        session.control().ask(&Command::Noop).await?;
        *round = started.elapsed();
    }
    rounds.sort();
    Ok(rounds[ROUNDS / 2])
}

/// The drivers that the server allows for data channels. It has no list; it accepts or refuses a stack.
async fn drivers(session: &mut Session) -> Result<Vec<&'static str>, ControlError> {
    let set = |request| Command::Site(SiteCommand::SetNetStack(request));
    let mut found = Vec::new();
    for driver in DRIVERS {
        let Some(name) = Text::new(driver) else {
            continue;
        };
        let command = set(StackRequest::Drivers(name));
        if session.control().ask(&command).await?.is_completion() {
            found.push(driver);
        }
    }
    session.control().ask(&set(StackRequest::Default)).await?;
    Ok(found)
}

fn chain(peer: &Peer) -> Vec<Certificate> {
    let certificates = peer.chain.iter().map(|one| Certificate {
        subject: one.subject().one_line().to_owned(),
        ..Certificate::until(one.validity().not_after)
    });
    certificates.collect()
}

impl Certificate {
    /// Without a subject.
    fn until(end: SystemTime) -> Self {
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        Self {
            subject: String::new(),
            expires: Timestamp::try_from(end)
                .map(|end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
                .unwrap_or_default(),
            seconds_left: left.as_secs(),
        }
    }

    fn text(&self) -> String {
        let left = match self.seconds_left {
            seconds @ 172_800.. => format!("{} days", seconds / 86_400),
            seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        };
        format!("{}, until {} ({left} left)", self.subject, self.expires)
    }
}

impl Answer {
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.url);
        let mut line = |name: &str, value: &str| {
            text += &format!("  {name:<12} {}\n", shown(value.as_bytes()));
        };
        let milliseconds = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        line("address", &self.address);
        line("greeting", &self.greeting);
        line("connect", &milliseconds(self.connect_seconds));
        line("login", &milliseconds(self.login_seconds));
        let round_trip = milliseconds(self.round_trip_seconds);
        line("round trip", &format!("{round_trip} (median of {ROUNDS})"));
        for (index, certificate) in self.certificates.iter().enumerate() {
            let name = if index == 0 { "server" } else { "issued by" };
            line(name, &certificate.text());
        }
        match &self.identity {
            Some(identity) => line("you", &identity.text()),
            None => line("you", "without a certificate"),
        }
        line("drivers", &self.drivers.join(", "));
        for (name, words) in self.rdma.lines() {
            line(name, &words);
        }
        line("features", &self.features.join(", "));
        text
    }
}
