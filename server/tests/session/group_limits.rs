//! Limits that the transfers of a group of users share.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_server::config::GroupLimit;

use crate::client::{Client, receive_blocks, send_block, send_end};
use crate::served::Served;

/// A server where anonymous users may have any name.
fn limited(limits: &[&str]) -> Served {
    let limits = limits
        .iter()
        .map(|limit| toml::from_str::<GroupLimit>(limit).expect("a limit"))
        .collect();
    Served::with(|settings| {
        settings.anonymous_names = Some(vec!["*".to_owned()]);
        settings.limit = Some(limits);
    })
}

fn user(served: &Served, name: &str) -> Client {
    let mut client = served.greeted();
    client.expect(&format!("USER {name}"), 331);
    client.expect("PASS test@", 230);
    client.expect("TYPE I", 200);
    client
}

const RATE: usize = 4_000_000;

#[test]
fn the_users_of_a_group_share_its_bandwidth_and_others_are_not_slowed() {
    let served = limited(&["name = 'slow'\nuser = 'slow*'\nbandwidth = 4000000"]);
    let bytes = 3 * RATE / 2;
    let content = vec![7; bytes];
    served.write("file", &content);
    let begun = Instant::now();
    let took = thread::scope(|scope| {
        // One gets in MODE E over two channels, the other one puts a stream.
        let getting = scope.spawn(|| {
            let mut client = user(&served, "slow1");
            client.expect("MODE E", 200);
            client.expect("OPTS RETR Parallelism=1,1,1;", 200);
            let listener = client.active();
            client.send("RETR file");
            let (mut data, _) = listener.accept().expect("accepted");
            assert!(receive_blocks(&mut data) == content);
            client.expect_reply(150);
            client.expect_reply(226);
            begun.elapsed()
        });
        let putting = scope.spawn(|| {
            let mut client = user(&served, "slow2");
            client.put("STOR copy", &content);
            begun.elapsed()
        });
        let mut fast = user(&served, "fast");
        assert!(fast.get("RETR file") == content);
        let alone = begun.elapsed();
        let both = [getting, putting].map(|thread| thread.join().expect("no panic"));
        assert!(alone < both[0].min(both[1]), "{alone:?} {both:?}");
        both
    });
    // Both have half of it, so they end at about the same time.
    let seconds = took[0].max(took[1]).as_secs_f64();
    let expected = (2 * bytes) as f64 / RATE as f64;
    assert!((0.9..1.3).contains(&(seconds / expected)), "{took:?}");
    let first = took[0].min(took[1]).as_secs_f64();
    assert!(first > 0.8 * seconds, "{took:?}");
    assert!(served.read("copy") == content);
}

#[test]
fn small_files_and_listings_count_too() {
    let served = limited(&["name = 'all'\nbandwidth = 1000000"]);
    served.write("file", vec![7; 50_000]);
    let mut client = user(&served, "any");
    client.expect("MODE E", 200);
    client.expect("OPTS RETR Parallelism=1,1,1;", 200);
    let listener = client.active();
    let begun = Instant::now();
    client.send("RETR file");
    let (mut data, _) = listener.accept().expect("accepted");
    for number in 0..10 {
        if number > 0 {
            client.send("RETR file");
        }
        assert_eq!(receive_blocks(&mut data).len(), 50_000);
        client.expect_reply(if number == 0 { 150 } else { 125 });
        client.expect_reply(226);
    }
    // One of them is the burst.
    assert!(
        begun.elapsed() >= Duration::from_millis(440),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn blocks_are_received_at_the_rate_of_the_lowest_limit() {
    let served = limited(&[
        "name = 'wide'\nbandwidth = '1G'",
        "name = 'narrow'\nnetwork = ['127.0.0.0/8']\nbandwidth = 1000000",
        "name = 'other'\nuser = 'nobody'\nbandwidth = '16K'",
    ]);
    let mut client = user(&served, "any");
    client.expect("MODE E", 200);
    let mut data = client.passive();
    let begun = Instant::now();
    client.expect("STOR file", 150);
    client.expect_reply(112);
    send_block(&mut data, 0, &vec![7; 500_000]);
    send_end(&mut data);
    for code in [112, 111, 226] {
        client.expect_reply(code);
    }
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(440)..Duration::from_secs(3)).contains(&took),
        "{took:?}"
    );
}

#[test]
fn transfers_beyond_those_of_the_group_wait() {
    let served = limited(&["name = 'one'\nuser = 'one*'\nmax-transfers = 1"]);
    served.write("file", "content");
    let mut first = user(&served, "one1");
    let mut running = first.passive();
    first.expect("STOR first", 150);
    // Another user of the group waits, and may give up.
    let mut second = user(&served, "one2");
    let mut data = second.passive();
    second.send("RETR file");
    assert_eq!(
        second.expect_reply(120),
        "120 Transfer queued; 0 ahead.\r\n"
    );
    let mut third = user(&served, "one3");
    let _data = third.passive();
    third.send("RETR file");
    assert_eq!(third.expect_reply(120), "120 Transfer queued; 1 ahead.\r\n");
    third.expect("ABOR", 426);
    third.expect_reply(226);
    // A user outside of it does not.
    assert_eq!(user(&served, "other").get("RETR file"), b"content");
    running.write_all(b"x").expect("sent");
    drop(running);
    first.expect_reply(226);
    second.expect_reply(150);
    let mut content = Vec::new();
    data.read_to_end(&mut content).expect("received");
    assert_eq!(content, b"content");
    second.expect_reply(226);
}

#[test]
fn a_transfer_that_waits_for_bandwidth_can_be_aborted() {
    let served = limited(&["name = 'all'\nbandwidth = '16K'"]);
    served.write("file", vec![7; 10_000_000]);
    let mut client = user(&served, "any");
    let _data = client.passive();
    client.expect("RETR file", 150);
    let begun = Instant::now();
    client.expect("ABOR", 426);
    client.expect_reply(226);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}
