//! `gridhaul sum`.

use gridhaul_protocol::command::AlgorithmName;

use super::Ending;
use super::arguments::SumArguments;
use super::servers::Servers;
use crate::location::Location;

pub(super) async fn run(arguments: &SumArguments) -> Ending {
    match sum(arguments).await {
        Ok(value) => {
            println!("{value}  {}", arguments.url);
            Ending::Complete
        }
        Err(error) => {
            eprintln!("gridhaul: {error}");
            Ending::Failed
        }
    }
}

async fn sum(arguments: &SumArguments) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let url = match Location::parse(&arguments.url).map_err(|error| text(&error))? {
        Location::Remote(url) => url,
        Location::Local(_) => return Err(format!("{}: not the URL of a server", arguments.url)),
    };
    let path = url.argument();
    let path = path.ok_or_else(|| format!("{url}: a path that FTP cannot send"))?;
    let algorithm = AlgorithmName::new(arguments.algorithm.name());
    let algorithm = algorithm.ok_or_else(|| "an algorithm without a name".to_owned())?;
    let mut session = Servers::new(arguments.login.clone())
        .open(&url.server)
        .await
        .map_err(|error| text(&error))?;
    let value = session.checksum(&algorithm, &path).await;
    session.close().await;
    value.map_err(|error| format!("{url}: {error}"))
}
