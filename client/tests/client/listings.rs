//! The room that listings of servers have on this machine, through the library.

use std::io::{self, Write as _};
use std::net::TcpStream;

use gridhaul_client::listing::{Lister, ListingError, ListingSettings, TreeWalk, WalkReason};
use gridhaul_client::local::{LocalConfig, LocalMachine};
use gridhaul_client::location::Url;
use gridhaul_client::login::{Account, Login};
use gridhaul_client::session::{Session, SessionConfig};

use crate::passive;
use crate::scripted::Scripted;

/// The bytes of each listing.
const LENGTH: usize = 200;

/// A server whose directories have each a directory `d`, in a listing of [`LENGTH`] bytes.
fn serve() -> Scripted {
    Scripted::start(Box::new(|line, control| {
        // The client may close the connection at any time.
        talk(line, control).unwrap_or(true)
    }))
}

fn talk(line: &str, control: &mut TcpStream) -> io::Result<bool> {
    let reply = match line.split(' ').next().unwrap_or_default() {
        "FEAT" => "211-Features\r\n MLST type*;size*;\r\n211 End.\r\n".to_owned(),
        "PASV" => passive::listen()?,
        "MLSD" => {
            control.write_all(b"150 Here it comes.\r\n")?;
            let mut channel = passive::accept()?;
            let entry = "Type=dir; d\r\nType=file;Size=1; ";
            let name = "x".repeat(LENGTH - entry.len() - 2);
            // The client may have had enough.
            let _ = channel.write_all(format!("{entry}{name}\r\n").as_bytes());
            "226 Complete.\r\n".to_owned()
        }
        _ => return Ok(false),
    };
    control.write_all(reply.as_bytes())?;
    Ok(true)
}

#[tokio::test]
async fn listings_that_are_open_at_a_time_share_their_room() {
    let server = serve();
    let machine = LocalMachine::new(LocalConfig {
        listing_bytes: 5 * LENGTH as u64,
        ..LocalConfig::default()
    });
    let root = Url::parse(&server.url("d")).unwrap();
    let login = Login::Clear(Account::Anonymous);
    let opened = Session::open(&root.server, login, SessionConfig::default()).await;
    let (mut session, lister) = (opened.unwrap(), Lister::new(&machine).unwrap());
    for _ in 0..2 {
        let how = ListingSettings::of(&session);
        let mut walk = TreeWalk::new(&mut session, &lister, how, (&root, 0));
        let mut directories = 0;
        let error = loop {
            match walk.next().await.expect("an error comes first") {
                Ok(step) if step.entry.facts.is_real_directory() => directories += 1,
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        // Each one has at most half of what is left.
        assert_eq!(directories, 4);
        let words = error.to_string();
        assert!(words.contains("/d/d/d/d/d"), "{words}");
        assert!(
            words.contains("than the 100 bytes that are left"),
            "{words}"
        );
        let WalkReason::Listing(ListingError::Long { all, .. }) = error.reason else {
            panic!("{words}");
        };
        assert_eq!(all, 1000);
        // The others are still open, and are read to their ends: then all of the room is free again.
        while let Some(step) = walk.next().await {
            let name = step.unwrap().entry.name;
            assert_eq!(name[0], b'x');
        }
    }
}
