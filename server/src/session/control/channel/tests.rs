use std::net::Ipv4Addr;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;

async fn pair() -> (Control, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("bound");
    let client = TcpStream::connect(listener.local_addr().expect("bound"))
        .await
        .expect("connected");
    let (server, _) = listener.accept().await.expect("accepted");
    (Control::new(server), client)
}

#[tokio::test]
async fn lines_come_in_order_and_the_end_after_them() {
    let (mut control, mut client) = pair().await;
    client
        .write_all(b"NOOP\r\nXYZZY\r\nQU")
        .await
        .expect("sent");
    while control.waiting.len() < 2 {
        control.receive().await.expect("received");
    }
    client.write_all(b"IT\r\n").await.expect("sent");
    drop(client);
    while !control.is_closed_by_client() {
        control.receive().await.expect("received");
    }
    let contents: Vec<_> = std::iter::from_fn(|| control.take())
        .map(|request| request.content)
        .collect();
    assert!(matches!(contents[0], Ok(Command::Noop)));
    assert!(matches!(contents[1], Err(Fault::Command(_))));
    assert!(matches!(contents[2], Ok(Command::Quit)));
    assert!(control.is_ended());
}

#[tokio::test]
async fn no_more_commands_are_taken_than_may_wait() {
    let (mut control, mut client) = pair().await;
    let sender = tokio::spawn(async move {
        client
            .write_all(&b"NOOP\r\n".repeat(1000))
            .await
            .expect("sent");
        client
    });
    let mut taken = 0;
    while taken < 1000 {
        if control.has_room() {
            control.receive().await.expect("received");
        }
        assert!(control.waiting.len() <= MOST_WAITING);
        while control.take().is_some() {
            taken += 1;
        }
    }
    sender.await.expect("no panic");
    assert_eq!(taken, 1000);
    assert!(control.has_looked_at_all());
}

#[tokio::test]
async fn an_abort_marks_what_came_before_it() {
    let (mut control, mut client) = pair().await;
    client
        .write_all(b"RETR a\r\nABOR\r\nRETR b\r\n")
        .await
        .expect("sent");
    while control.waiting.len() < 3 {
        control.receive().await.expect("received");
    }
    assert!(control.abort_waits());
    assert!(control.take().is_some_and(|request| request.aborted));
    assert!(control.take().is_some_and(|request| request.is_abort()));
    assert!(!control.abort_waits());
    assert!(control.take().is_some_and(|request| !request.aborted));
}

#[tokio::test]
async fn replies_are_sent_together() {
    let (mut control, mut client) = pair().await;
    control.reply(&Reply::new(200, "one"));
    control.reply(&Reply::new(226, "two"));
    control.close().await;
    let mut text = String::new();
    client.read_to_string(&mut text).await.expect("received");
    assert_eq!(text, "200 one\r\n226 two\r\n");
}
