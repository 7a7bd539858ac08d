//! Questions to DNS.
//!
//! Addresses come from the resolver of this machine, which knows `/etc/hosts` too; it has no question for services, so these go to
//! the name servers of `/etc/resolv.conf`. With `nodes-resolver` all questions go to the name servers that it names.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, Name, Rtype};
use domain::rdata::{A, Aaaa, Srv};
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::{ResolvConf, ServerConf, Transport};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::NameServer;

/// The bounds of the time for which an answer counts: a shorter one would ask too often, and nodes come and go within a minute.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);

/// How long an answer of the machine's resolver counts, which does not say it.
const OF_MACHINE: Duration = Duration::from_secs(30);

/// The time for an answer, over all name servers and attempts.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most questions that are open at a time.
const AT_A_TIME: usize = 16;

/// Asks the name servers.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The servers of `nodes-resolver`, or none.
    servers: Vec<SocketAddr>,
    /// The questions that may be open at a time.
    room: Arc<Semaphore>,
}

/// An answer, and how long it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer<T> {
    pub(super) values: Vec<T>,
    pub(super) counts: Duration,
}

/// A target of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceTarget {
    /// In lower case and without the last dot; empty for the root, which means that there is no service (RFC 2782).
    pub(super) host: String,
    pub(super) port: u16,
}

impl Names {
    pub(crate) fn new(servers: &[NameServer]) -> Self {
        Self {
            servers: servers.iter().map(|server| server.0).collect(),
            room: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    /// The addresses of a host, at least one.
    pub(super) async fn addresses(&self, host: &str) -> Result<Answer<IpAddr>, String> {
        if self.servers.is_empty() {
            let host = host.to_owned();
            let found = self
                .ask_machine(move || (host, 0).to_socket_addrs())
                .await?;
            let mut values: Vec<_> = found.map(|address| address.ip().to_canonical()).collect();
            values.dedup();
            return whole(Answer {
                values,
                counts: OF_MACHINE,
            });
        }
        let (v4, v6) = tokio::join!(self.ask(host, Rtype::A), self.ask(host, Rtype::AAAA));
        let answers = match (v4, v6) {
            // A name with addresses of one kind is complete, if the other answer says that there are none.
            (Ok(v4), Ok(v6)) => [v4, v6],
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let mut all = Collected::new();
        for answer in &answers {
            all.add::<A, _>(answer, |record| IpAddr::V4(record.addr()));
            all.add::<Aaaa, _>(answer, |record| IpAddr::V6(record.addr()));
        }
        whole(all.answer())
    }

    /// The targets of a service, at least one, in the order of their names.
    pub(super) async fn service(&self, name: &str) -> Result<Answer<ServiceTarget>, String> {
        let answer = self.ask(name, Rtype::SRV).await?;
        let mut all = Collected::new();
        all.add::<Srv<_>, _>(&answer, |record| ServiceTarget {
            host: record.target().to_string().to_ascii_lowercase(),
            port: record.port(),
        });
        let mut answer = all.answer();
        answer.values.sort();
        answer.values.dedup();
        whole(answer)
    }

    /// Asks the resolver of this machine, on a thread that nothing can end. A question without an answer therefore keeps its
    /// place until the resolver gives up: more threads would wait for the same silent name server.
    async fn ask_machine<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let room = Arc::clone(&self.room);
        let asked = async {
            let room = room.acquire_owned().await.map_err(text)?;
            let thread = tokio::task::spawn_blocking(move || {
                let _room = room;
                question()
            });
            thread.await.map_err(text)?.map_err(text)
        };
        timeout(PATIENCE, asked).await.map_err(|_| silence())?
    }

    async fn ask(&self, name: &str, kind: Rtype) -> Result<Message<bytes::Bytes>, String> {
        let name = Name::<Vec<u8>>::from_str(name).map_err(text)?;
        let servers = self.servers.clone();
        // The file of the machine is read each time, because it changes with the network.
        let configured = tokio::task::spawn_blocking(move || configuration(&servers)).await;
        let resolver = StubResolver::from_conf(configured.map_err(text)?);
        let _room = self.room.acquire().await.map_err(text)?;
        let answer = timeout(PATIENCE, resolver.query((&name, kind))).await;
        let answer = answer.map_err(|_| silence())?.map_err(text)?.into_message();
        match answer.header().rcode() {
            Rcode::NOERROR => Ok(answer),
            Rcode::NXDOMAIN => Err("DNS has no such name".to_owned()),
            code => Err(format!("the name server answers {code}")),
        }
    }
}

fn configuration(servers: &[SocketAddr]) -> ResolvConf {
    if servers.is_empty() {
        return ResolvConf::default();
    }
    let mut conf = ResolvConf::new();
    let servers = servers.iter();
    conf.servers = servers
        .map(|address| ServerConf::new(*address, Transport::UdpTcp))
        .collect();
    conf.finalize();
    conf
}

/// Records of answers.
struct Collected<T> {
    values: Vec<T>,
    counts: Duration,
}

impl<T> Collected<T> {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            counts: LONGEST,
        }
    }

    /// Adds the records of a type that belong to the name that was asked for, by way of aliases (CNAME).
    fn add<'a, D, F>(&mut self, message: &'a Message<bytes::Bytes>, value: F)
    where
        D: domain::base::rdata::ParseRecordData<'a, bytes::Bytes>,
        F: Fn(&D) -> T,
    {
        let (Some(name), Ok(section)) = (message.canonical_name(), message.answer()) else {
            return;
        };
        for record in section.limit_to::<D>().flatten() {
            if *record.owner() == name {
                self.counts = self.counts.min(record.ttl().into_duration()).max(SHORTEST);
                self.values.push(value(record.data()));
            }
        }
    }

    fn answer(self) -> Answer<T> {
        Answer {
            values: self.values,
            counts: self.counts,
        }
    }
}

/// An answer without values is none: a name that has lost its records must not take all nodes away.
fn whole<T>(answer: Answer<T>) -> Result<Answer<T>, String> {
    match answer.values.is_empty() {
        true => Err("DNS has no such records for the name".to_owned()),
        false => Ok(answer),
    }
}

fn silence() -> String {
    text(io::Error::from(io::ErrorKind::TimedOut))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_keeps_its_place() {
        let names = Names::new(&[]);
        let mut answers = Vec::new();
        for _ in 0..AT_A_TIME {
            let (answer, asked) = mpsc::channel::<()>();
            answers.push(answer);
            let hung = move || asked.recv().map_err(|_| io::ErrorKind::TimedOut.into());
            assert_eq!(after_patience(&names, hung).await, Err(silence()));
        }
        let waits = after_patience(&names, || Ok(())).await;
        assert_eq!(waits, Err(silence()), "there is no place");
        drop(answers);
        // The threads end.
        let all = u32::try_from(AT_A_TIME).expect("a small number");
        drop(names.room.acquire_many(all).await.expect("open"));
        assert_eq!(names.ask_machine(|| Ok(1)).await, Ok(1));
    }

    /// The answer when the time for it is over. The clock stands while a thread runs, so it is moved.
    async fn after_patience<T: Send + 'static>(
        names: &Names,
        question: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let mut asked = pin!(names.ask_machine(question));
        tokio::select! {
            biased;
            answer = &mut asked => return answer,
            () = tokio::task::yield_now() => {}
        }
        tokio::time::advance(PATIENCE).await;
        asked.await
    }
}
