//! Answers that come late, never or changed.

use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio::time::{advance, timeout};

use super::*;
use crate::locks::lock;

fn source(name: &str) -> NodeSource {
    name.parse().expect("an entry")
}

fn found(names: &[&str]) -> Answer {
    let target = |name: &&str| Target {
        name: (*name).to_owned(),
        host: name.parse().expect("a host"),
        addresses: Err("not looked up".to_owned()),
    };
    Ok(Found {
        targets: names.iter().map(target).collect(),
        again: Duration::from_secs(60),
        refused: Refused::default(),
    })
}

fn names(entries: &Entries) -> Vec<&str> {
    entries.targets().map(|one| one.name.as_str()).collect()
}

/// Entries that a look-up has found, each with a node of its own name.
async fn known(sources: &[&str]) -> Entries {
    let mut entries = Entries::default();
    let sources: Vec<_> = sources.iter().map(|name| source(name)).collect();
    entries.follow(&sources);
    entries.ask(|source| {
        let host = source.to_string().replace(":7512", "");
        ready(found(&[&host]))
    });
    while entries.present.iter().any(|entry| !entry.is_known) {
        entries.answered().await;
    }
    entries
}

/// Look-ups that end when the test says so, in the order in which they began.
#[derive(Default)]
struct Slow(Mutex<Vec<(NodeSource, oneshot::Sender<Answer>)>>);

impl Slow {
    fn look_up(&self, source: NodeSource) -> impl Future<Output = Answer> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).push((source, sender));
        async { receiver.await.unwrap_or_else(|_| Err("ended".to_owned())) }
    }

    fn asked(&self) -> Vec<String> {
        let asked = lock(&self.0);
        asked.iter().map(|(source, _)| source.to_string()).collect()
    }

    fn answer(&self, place: usize, answer: Answer) {
        let (_, sender) = lock(&self.0).remove(place);
        sender.send(answer).expect("it waits");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_stay_until_those_that_replace_them_are_known() {
    for (answer, expected) in [
        (found(&["dtn3.test"]), vec!["dtn2.test", "dtn3.test"]),
        (Err("silence".to_owned()), vec!["dtn2.test"]),
    ] {
        let mut entries = known(&["dtn1.test", "dtn2.test"]).await;
        let slow = Slow::default();
        entries.follow(&[source("dtn2.test"), source("dtn3.test")]);
        assert_eq!(names(&entries), ["dtn2.test", "dtn1.test"]);
        entries.ask(|source| slow.look_up(source));
        assert_eq!(slow.asked(), ["dtn3.test:7512"]);
        slow.answer(0, answer);
        entries.answered().await;
        assert_eq!(names(&entries), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_node_goes_at_once_if_nothing_is_awaited_and_in_time_if_dns_is_silent() {
    let mut entries = known(&["dtn1.test", "dtn2.test"]).await;
    entries.follow(&[source("dtn2.test")]);
    assert_eq!(names(&entries), ["dtn2.test"]);

    let slow = Slow::default();
    entries.follow(&[source("dtn3.test")]);
    entries.ask(|source| slow.look_up(source));
    // Another reload gives it no further time.
    advance(REPLACED_WITHIN / 2).await;
    entries.follow(&[source("dtn3.test"), source("dtn4.test")]);
    assert_eq!(names(&entries), ["dtn2.test"]);
    let due = entries.next_due().expect("dtn4 has to be asked about");
    assert!(due <= Instant::now());
    entries.ask(|source| slow.look_up(source));
    let due = entries.next_due().expect("the end of dtn2");
    advance(due - Instant::now()).await;
    entries.forget_replaced();
    assert_eq!(names(&entries), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_entry_delays_no_other_one_and_is_not_asked_twice() {
    let mut entries = Entries::default();
    let slow = Slow::default();
    let silent = source("dns+srv:_a._tcp.silent.test");
    entries.follow(&[silent.clone(), source("dtn1.test")]);
    entries.ask(|source| slow.look_up(source));
    slow.answer(1, found(&["dtn1.test"]));
    entries.answered().await;
    assert_eq!(names(&entries), ["dtn1.test"]);

    // A reload is followed, and the answer to a question about an entry that is gone is dropped.
    entries.follow(&[silent.clone(), source("dtn2.test")]);
    for _ in 0..3 {
        advance(Duration::from_secs(60)).await;
        entries.ask(|source| slow.look_up(source));
        entries.follow(&[source("dtn2.test")]);
        entries.follow(&[silent.clone(), source("dtn2.test")]);
    }
    let silent_entry = "dns+srv:_a._tcp.silent.test";
    assert_eq!(slow.asked(), [silent_entry, "dtn2.test:7512"]);
    entries.follow(&[source("dtn2.test")]);
    slow.answer(0, found(&["late.test"]));
    slow.answer(0, found(&["dtn2.test"]));
    while entries.targets().next().is_none() {
        entries.answered().await;
    }
    assert_eq!(names(&entries), ["dtn2.test"]);
    // Without a question there is no answer.
    let waits = timeout(Duration::from_secs(3600), entries.answered()).await;
    assert!(waits.is_err());
}

#[tokio::test]
async fn a_look_up_that_panics_is_a_failure_and_is_repeated() {
    let mut entries = Entries::default();
    entries.follow(&[source("dtn1.test")]);
    entries.ask(|_| async { panic!("a mistake of this test") });
    entries.answered().await;
    assert!(entries.present[0].failure.is_some());
    let due = entries.next_due().expect("again");
    assert!(due > Instant::now() && due <= Instant::now() + RETRY);
}

/// Lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn refused_records_are_logged_once_a_minute_at_most() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let count = || {
        let text = String::from_utf8(lock(&lines.0).clone()).expect("text");
        text.matches("not used for").count()
    };
    let mut entry = Entry::new(&source("dns+srv:_a._tcp.lying.test"));
    let mut take = |text: &str| {
        let Ok(found) = found(&[]) else { return };
        let reasons = (0..16).map(|number| format!("{text} {number}"));
        let refused = Refused {
            reasons: reasons.collect(),
            others: 3000,
        };
        entry.take(Ok(Found { refused, ..found }));
    };
    take("first");
    assert_eq!(count(), 17);
    for number in 0..11 {
        advance(Duration::from_secs(5)).await;
        take(&format!("another {number}"));
    }
    assert_eq!(count(), 17);
    advance(Duration::from_secs(5)).await;
    take("last");
    assert_eq!(count(), 34);
    advance(Duration::from_secs(600)).await;
    take("last");
    assert_eq!(count(), 34);
}
