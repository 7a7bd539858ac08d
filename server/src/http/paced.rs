//! Answers that are expensive to make, and that many clients may ask for.
//!
//! One answer is made at a time, on a thread for blocking work, and is for all requests that came before its making began. A
//! pause follows. So requests cost a bounded share of one processor, however many there are, and no answer is older than its
//! request.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::answers::{Answer, text};

/// The shortest pause, longer than most answers take.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest pause: scrapers wait some seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The pause after an answer, in durations of its making.
const SHARE: u32 = 4;

/// One kind of answer.
#[derive(Debug, Default)]
pub(crate) struct Paced(Arc<Mutex<Option<Made>>>);

#[derive(Debug)]
struct Made {
    begun: Instant,
    ended: Instant,
    answer: Answer,
}

impl Paced {
    /// An answer whose making begins after this call, by `make` or by that of another call.
    pub(crate) async fn answer(&self, make: impl FnOnce() -> Answer + Send + 'static) -> Answer {
        let asked = Instant::now();
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some(made) = &*last {
            if made.begun > asked {
                return made.answer.clone();
            }
            tokio::time::sleep_until(made.ended + made.pause()).await;
        }
        // The thread has the lock: clients that disconnect do not make others begin at the same time.
        let making = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let answer = make();
            *last = Some(Made {
                begun,
                ended: Instant::now(),
                answer: answer.clone(),
            });
            answer
        });
        let failed = |error: tokio::task::JoinError| {
            text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
        };
        making.await.unwrap_or_else(failed)
    }
}

impl Made {
    fn pause(&self) -> Duration {
        let took = self.ended.duration_since(self.begun);
        (took * SHARE).clamp(PAUSE, LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use http_body_util::BodyExt as _;
    use tokio::task::JoinSet;

    use super::*;

    fn body(number: usize) -> Answer {
        text(StatusCode::OK, &number.to_string())
    }

    #[tokio::test]
    async fn many_requests_at_once_have_one_answer_made() {
        let (paced, made) = (Arc::new(Paced::default()), Arc::new(AtomicUsize::new(0)));
        let (go_on, waits) = mpsc::channel::<()>();
        let (begins, has_begun) = mpsc::channel();
        let first = {
            let (paced, made) = (Arc::clone(&paced), Arc::clone(&made));
            let make = move || {
                begins.send(()).expect("received");
                waits.recv().expect("sent");
                body(made.fetch_add(1, Ordering::Relaxed))
            };
            tokio::spawn(async move { paced.answer(make).await })
        };
        // The lock is held from here on.
        while paced.0.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        has_begun.recv().expect("sent");
        let (mut others, asked) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let (paced, made) = (Arc::clone(&paced), Arc::clone(&made));
            let make = move || body(made.fetch_add(1, Ordering::Relaxed));
            let asked = Arc::clone(&asked);
            others.spawn(async move {
                asked.fetch_add(1, Ordering::Relaxed);
                paced.answer(make).await
            });
        }
        while asked.load(Ordering::Relaxed) < 100 {
            tokio::task::yield_now().await;
        }
        go_on.send(()).expect("it waits");
        first.await.expect("no panic");
        // The first answer may be older than the other requests, and they share one of their own.
        others.join_all().await;
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn clients_that_disconnect_do_not_have_several_answers_made_at_a_time() {
        let paced = Paced::default();
        let (go_on, waits) = mpsc::channel::<()>();
        let (begins, has_begun) = mpsc::channel();
        let make = move || {
            begins.send(()).expect("received");
            waits.recv().expect("sent");
            body(1)
        };
        tokio::select! {
            biased;
            _ = paced.answer(make) => panic!("it waits"),
            () = tokio::task::yield_now() => {}
        }
        has_begun.recv().expect("sent");
        let (other_made, was_made) = mpsc::channel();
        let mut other = std::pin::pin!(paced.answer(move || {
            other_made.send(()).expect("received");
            body(2)
        }));
        tokio::select! {
            biased;
            _ = &mut other => panic!("the first is being made"),
            () = tokio::task::yield_now() => {}
        }
        assert!(was_made.try_recv().is_err());
        go_on.send(()).expect("it waits");
        other.await;
        was_made.try_recv().expect("made after the first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_follows_each_answer_and_none_is_older_than_its_request() {
        let (paced, begun) = (Paced::default(), Instant::now());
        for number in 0..3 {
            let answer = paced.answer(move || body(number)).await;
            let bytes = answer
                .into_body()
                .collect()
                .await
                .expect("whole")
                .to_bytes();
            assert_eq!(bytes, format!("{number}\n"));
        }
        assert_eq!(begun.elapsed(), 2 * PAUSE);
    }

    #[test]
    fn a_slow_answer_is_followed_by_a_longer_pause() {
        let begun = Instant::now();
        let pause_after = |took| {
            let (ended, answer) = (begun + took, body(0));
            Made {
                begun,
                ended,
                answer,
            }
            .pause()
        };
        assert_eq!(pause_after(Duration::from_millis(1)), PAUSE);
        assert_eq!(
            pause_after(Duration::from_millis(100)),
            Duration::from_millis(400)
        );
        assert_eq!(pause_after(Duration::from_secs(30)), LONGEST_PAUSE);
    }
}
