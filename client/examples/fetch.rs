//! Fetches a file of a server, or prints the names in a directory:
//!
//! ```sh
//! cargo run -p gridhaul-client --example fetch -- gsiftp://dtn.example.org/data/run42.h5 /tmp
//! ```
//!
//! With `gsiftp` the user's proxy or certificate logs in, with `ftp` an anonymous user.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gridhaul_client::listing::{Lister, ListingSettings};
use gridhaul_client::local::{LocalConfig, LocalMachine};
use gridhaul_client::location::{Location, Scheme, Server};
use gridhaul_client::login::{Account, ExpectedServer, Identity, IdentityPlaces, Login};
use gridhaul_client::session::{Session, SessionConfig, TransferSettings};
use gridhaul_client::transfer::{Direction, FileCopy, Unobserved, two_party};
use gridhaul_transfer::{Admission, Handling, UploadName};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(directory), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        eprintln!("usage: fetch URL DIRECTORY");
        return ExitCode::from(2);
    };
    match fetch(&url, Path::new(&directory)).await {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Fetches a file into a directory of this machine. Returns what was done: the bytes, or the names in a directory.
pub(crate) async fn fetch(url: &str, directory: &Path) -> Result<String, Box<dyn Error>> {
    let Location::Remote(url) = Location::parse(url)? else {
        return Err("a URL is wanted, with gsiftp or ftp".into());
    };
    let machine = LocalMachine::new(LocalConfig::default());
    let login = login(&url.server)?;
    let mut session = Session::open(&url.server, login, SessionConfig::default()).await?;
    let path = url.argument()?;
    if session.is_directory(&path).await? == Some(true) {
        let lister = Lister::new(&machine)?;
        let how = ListingSettings::of(&session);
        let mut names = Vec::new();
        for entry in lister.list(&mut session, &path, &how).await? {
            // Names are bytes, and a hostile server may send control characters.
            names.push(entry?.name.escape_ascii().to_string());
        }
        session.close().await;
        names.sort();
        return Ok(names.join("\n"));
    }
    // No name of a server leads out of this directory. Nothing connects to this machine in stream mode.
    let files = machine.files(directory, Admission::none())?;
    let name = url.path.rsplit(|byte| *byte == b'/').next();
    let name = PathBuf::from(String::from_utf8(name.unwrap_or_default().to_vec())?);
    let copy = FileCopy {
        size: session.size(&path).await?,
        // The file gets its name when it is complete.
        handling: Handling {
            upload: UploadName::Temporary,
            ..Handling::default()
        },
        ..FileCopy::new(
            Direction::Get,
            name,
            path,
            TransferSettings::of(&[&session]),
        )
    };
    let done = two_party(&mut session, &files, &copy, &mut Unobserved).await?;
    session.close().await;
    Ok(format!("{} bytes", done.bytes))
}

fn login(server: &Server) -> Result<Login, Box<dyn Error>> {
    Ok(match server.scheme {
        Scheme::GsiFtp => Login::Certificate {
            identity: Identity::find(&IdentityPlaces::default())?,
            expected: ExpectedServer::Host,
        },
        Scheme::Ftp => Login::Clear(Account::Anonymous),
        Scheme::Ftps | Scheme::SshFtp => return Err("this example has gsiftp and ftp only".into()),
    })
}
